'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const charts = new Map();

  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const narrow = () => document.documentElement.clientWidth < 600;

  // figure formats v with three significant digits and separators.
  const figure = v => {
    if (v === 0) return '0';
    const a = Math.abs(v);
    if (a < 0.001 || a >= 1e9) return v.toExponential(1);
    return a < 100 ? String(Number(v.toPrecision(3))) : Math.round(v).toLocaleString('en');
  };

  const spread = p => p.low && p.high && p.low !== p.high ? ` (${figure(p.low)} to ${figure(p.high)})` : '';

  const titles = new Map(data.units);

  const axis = (title, log) => ({
    type: log ? 'logarithmic' : 'linear',
    title: { display: Boolean(title), text: title, color: style('--quiet') },
    grid: { color: style('--line') },
    ticks: {
      color: style('--quiet'),
      maxRotation: 0,
      // A logarithmic axis labels 1, 2 and 5, or only 1 if it spans many powers of ten.
      callback(v) {
        if (!log) return figure(v);
        const first = v.toExponential()[0];
        const round = Number(v.toPrecision(1)) === Number(v.toPrecision(6));
        return round && (first === '1' || (this.max / this.min < 500 && (first === '2' || first === '5'))) ? figure(v) : null;
      },
    },
  });

  const legend = () => ({
    position: 'bottom',
    labels: { color: style('--ink'), boxWidth: 14, usePointStyle: true, font: { size: narrow() ? 10 : 12 } },
  });

  const lines = plot => ({
    type: 'line',
    data: {
      datasets: plot.series.map(s => ({
        label: s.name,
        data: s.points,
        borderColor: s.color,
        backgroundColor: s.color,
        borderDash: s.dashed ? [6, 5] : [],
        borderWidth: 2,
        pointRadius: s.plain ? 0 : 3,
      })),
    },
    options: {
      responsive: true,
      maintainAspectRatio: false,
      animation: false,
      interaction: { mode: 'nearest', intersect: false },
      scales: { x: axis(plot.x, plot.xlog), y: axis(plot.y, plot.ylog) },
      plugins: {
        legend: legend(),
        tooltip: {
          callbacks: {
            title: items => items.length ? items[0].raw.text || items[0].dataset.label : '',
            label: item => [`${plot.x}: ${figure(item.raw.x)}`, `${plot.y}: ${figure(item.raw.y)}${spread(item.raw)}`],
          },
        },
      },
    },
  });

  // On narrow screens, long names are broken at commas.
  const broken = name => narrow() ? name.split(', ').reduce((rows, part) => {
    const last = rows[rows.length - 1];
    if (last !== undefined && last.length + part.length < 14) rows[rows.length - 1] = `${last}, ${part}`;
    else rows.push(part);
    return rows;
  }, []) : name;

  const bars = plot => {
    const category = axis('', false);
    category.type = 'category';
    category.ticks = { color: style('--ink'), autoSkip: false, font: { size: narrow() ? 10 : 12 } };
    return {
      type: 'bar',
      data: {
        labels: plot.bars.map(broken),
        datasets: plot.series.map(s => ({
          label: s.name,
          data: s.points.map(p => p.y || null),
          points: s.points,
          backgroundColor: s.color,
          borderColor: s.color,
        })),
      },
      options: {
        indexAxis: 'y',
        responsive: true,
        maintainAspectRatio: false,
        animation: false,
        scales: { x: axis(plot.x, plot.xlog), y: category },
        plugins: {
          legend: plot.series.length > 1 ? legend() : { display: false },
          tooltip: {
            callbacks: {
              title: items => items.length ? plot.bars[items[0].dataIndex] : '',
              label: item => {
                const p = item.dataset.points[item.dataIndex];
                return `${item.dataset.label}: ${figure(p.y)}${spread(p)}`;
              },
            },
          },
        },
      },
    };
  };

  const draw = (box, plot) => {
    charts.get(box)?.destroy();
    if (plot.bars) {
      box.style.height = `${130 + plot.bars.length * (8 + 14 * plot.series.length)}px`;
    }
    charts.set(box, new Chart(box.querySelector('canvas'), plot.bars ? bars(plot) : lines(plot)));
  };

  const drawAll = () => {
    for (const box of document.querySelectorAll('[data-plot]')) {
      draw(box, data.plots.find(p => p.name === box.dataset.plot));
    }
    explore();
  };

  // The plot that the user chooses.
  const section = document.getElementById('section');
  const benchmark = document.getElementById('benchmark');
  const unit = document.getElementById('unit');
  const log = document.getElementById('log');

  const fill = (select, values, title = v => v) => {
    const before = select.value;
    select.replaceChildren(...values.map(v => new Option(title(v), v)));
    if (values.includes(before)) select.value = before;
  };

  const nameOf = r => `${r.benchmark}, ${r.num.toLocaleString('en')} keys`;
  const distinct = list => [...new Set(list)];

  const choose = () => {
    fill(section, distinct(data.rows.map(r => r.section)));
    const inSection = data.rows.filter(r => r.section === section.value);
    fill(benchmark, distinct(inSection.map(nameOf)));
    const chosen = inSection.filter(r => nameOf(r) === benchmark.value);
    const units = [...titles.keys()].filter(u => chosen.some(r => u in r.values));
    fill(unit, units, u => `${u}: ${titles.get(u)}`);
    return chosen.filter(r => unit.value in r.values).sort((a, b) => a.values[unit.value][0] - b.values[unit.value][0]);
  };

  const explore = () => {
    const rows = choose();
    if (rows.length === 0) return;
    document.getElementById('explored-title').textContent = `${benchmark.value}: ${titles.get(unit.value)}`;
    draw(document.getElementById('explored'), {
      x: unit.value,
      xlog: log.checked,
      bars: rows.map(r => r.name),
      series: [{
        name: unit.value,
        color: style('--accent'),
        points: rows.map(r => {
          const [y, low, high] = r.values[unit.value];
          return { y, low, high };
        }),
      }],
    });
  };

  document.getElementById('choice').addEventListener('change', explore);
  dark.addEventListener('change', drawAll);
  let wasNarrow = narrow();
  addEventListener('resize', () => {
    if (narrow() !== wasNarrow) {
      wasNarrow = narrow();
      drawAll();
    }
  });
  drawAll();
  // For tests: the drawn charts.
  window.siftCharts = charts;
})();
