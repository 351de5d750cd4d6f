package serial

// graph is a directed graph whose edges have reasons.
type graph struct {
	out [][]edge
}

type edge struct {
	to  int
	why dependency
}

func (g *graph) init(n int) { g.out = make([][]edge, n) }

// add adds n nodes and returns the first.
func (g *graph) add(n int) int {
	first := len(g.out)
	g.out = append(g.out, make([][]edge, n)...)
	return first
}

func (g *graph) edge(a, b int, why dependency) { g.out[a] = append(g.out[a], edge{b, why}) }

// cycle returns a short cycle: its nodes, and why each comes before the next. It returns nil if
// there is none.
func (g *graph) cycle() (nodes []int, why []dependency) {
	left := g.onCycles()
	for n, on := range left {
		if !on {
			continue
		}
		if at, reasons := g.back(n, left); at != nil && (nodes == nil || len(at) < len(nodes)) {
			nodes, why = at, reasons
		}
	}
	return nodes, why
}

// onCycles removes nodes without predecessors or without successors until there are
// none: what is left lies on cycles or between them.
func (g *graph) onCycles() []bool {
	left := make([]bool, len(g.out))
	in := make([]int, len(g.out))
	from := make([][]int, len(g.out))
	outs := make([]int, len(g.out))
	for n, edges := range g.out {
		left[n] = true
		outs[n] = len(edges)
		for _, e := range edges {
			in[e.to]++
			from[e.to] = append(from[e.to], n)
		}
	}
	var todo []int
	for n := range left {
		if in[n] == 0 || outs[n] == 0 {
			left[n] = false
			todo = append(todo, n)
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range g.out[n] {
			if in[e.to]--; left[e.to] && in[e.to] == 0 {
				left[e.to] = false
				todo = append(todo, e.to)
			}
		}
		for _, p := range from[n] {
			if outs[p]--; left[p] && outs[p] == 0 {
				left[p] = false
				todo = append(todo, p)
			}
		}
	}
	return left
}

// back returns a shortest path from a node back to itself.
func (g *graph) back(start int, within []bool) (nodes []int, why []dependency) {
	type step struct {
		before int
		why    dependency
	}
	steps := map[int]step{}
	queue := []int{start}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, e := range g.out[n] {
			if _, ok := steps[e.to]; ok || !within[e.to] {
				continue
			}
			steps[e.to] = step{n, e.why}
			if e.to != start {
				queue = append(queue, e.to)
				continue
			}
			for at := start; ; {
				s := steps[at]
				nodes, why = append([]int{s.before}, nodes...), append([]dependency{s.why}, why...)
				if at = s.before; at == start {
					return nodes, why
				}
			}
		}
	}
	return nil, nil
}
