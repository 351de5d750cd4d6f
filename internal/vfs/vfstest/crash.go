package vfstest

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
)

// What a power cut leaves. Sync makes the file's data durable, under whichever
// of its names survives. SyncDir makes the changes to the names in that
// directory durable. Of all else, anything may have reached the disk:
//
//   - Each 512-byte sector of unsynced data is as written, zeros, or garbage,
//     independently of the sectors before it, and the file may end anywhere
//     from the synced length on. Synced bytes do not change.
//   - Each create, link, rename, remove and mkdir happened or did not,
//     independently of the others, except that changes of one name happened in
//     order. A rename is one change to both names. It is durable after SyncDir
//     of the directory of the new name.
//   - A file or directory without a name is gone, so a new directory needs a
//     SyncDir of its parent.
//   - A log (CreateLog) that was written to after its first Sync may be followed
//     by zeros that were not written to it.
//   - Garbage is random. It is never what another file held before: LevelDB's
//     log format cannot tell such bytes from its own.

// Survival selects which unsynced changes survive a power cut.
type Survival uint64

const (
	// LoseUnsynced loses all unsynced changes.
	LoseUnsynced Survival = 0
	// KeepUnsynced keeps all unsynced changes.
	KeepUnsynced Survival = 1
)

// TearUnsynced decides for each change at random. Equal seeds make equal decisions.
func TearUnsynced(seed uint64) Survival { return Survival(seed) + 2 }

const sectorSize = 512

// place is where a directory has, or may have, an entry.
type place struct {
	dir  int
	name string
}

// cell is what an entry was set to; node is 0 if it was removed.
type cell struct {
	place
	node int
}

// change is one atomic change of directory entries. The directory of the first
// cell is the one to sync.
type change struct{ cells []cell }

func setEntry(dir int, name string, node int) change {
	return change{cells: []cell{{place{dir, name}, node}}}
}

func (c change) apply(dirs map[int]map[string]int) {
	for _, e := range c.cells {
		if e.node == 0 {
			delete(dirs[e.dir], e.name)
			continue
		}
		if dirs[e.dir] == nil {
			dirs[e.dir] = map[string]int{}
		}
		dirs[e.dir][e.name] = e.node
	}
}

// crashLog tracks what is durable after the first operations of a Mem. Moving forward costs only
// what has changed; moving back starts from the beginning.
type crashLog struct {
	firstSizes []int64 // of the initial files
	firstDirs  map[int]map[string]int

	started bool
	numOps  int
	files   []fileState // by node
	dirs    map[int]map[string]int
	pending []change
}

// fileState says how much of a file is durable.
type fileState struct {
	size    int64
	synced  int64
	lostEnd int64 // end of the bytes that a failed Sync lost, if above synced
	holes   []hole
	grown   bool // written to after the first Sync
}

// hole is a range of bytes that a failed Sync lost, below the synced length.
type hole struct{ from, to int64 }

// begin treats the current state of m as durable.
func (l *crashLog) begin(m *Mem) {
	l.firstSizes = make([]int64, len(m.nodes))
	for i, n := range m.nodes[1:] {
		l.firstSizes[i+1] = int64(len(n.data))
	}
	l.firstDirs = cloneDirs(m.dirs)
}

func cloneDirs(dirs map[int]map[string]int) map[int]map[string]int {
	c := make(map[int]map[string]int, len(dirs))
	for d, entries := range dirs {
		c[d] = maps.Clone(entries)
	}
	return c
}

// moveTo makes l describe the state after the first n operations.
func (l *crashLog) moveTo(ops []memOp, n int) {
	if !l.started || l.numOps > n {
		l.started, l.numOps, l.pending = true, 0, nil
		l.files = l.files[:0]
		for _, size := range l.firstSizes {
			l.files = append(l.files, fileState{size: size, synced: size})
		}
		l.dirs = cloneDirs(l.firstDirs)
	}
	for ; l.numOps < n; l.numOps++ {
		l.take(ops[l.numOps])
	}
}

func (l *crashLog) take(o memOp) {
	for len(l.files) <= o.node {
		l.files = append(l.files, fileState{})
	}
	f := &l.files[o.node]
	switch o.op.Kind {
	case OpWrite:
		f.size = o.size
		f.grown = f.synced > 0
	case OpSync:
		if f.size == f.lostEnd {
			break // nothing was written since the data was lost
		}
		if f.lostEnd > f.synced {
			f.holes = append(slices.Clip(f.holes), hole{f.synced, f.lostEnd})
		}
		f.synced = f.size
	case OpSyncLost:
		if f.size > f.synced {
			f.lostEnd = f.size
		}
	case OpSyncDir:
		kept := l.choose(func(c change) bool { return c.cells[0].dir == o.node })
		rest := l.pending[:0:0]
		for i, c := range l.pending {
			if kept[i] {
				c.apply(l.dirs)
			} else {
				rest = append(rest, c)
			}
		}
		l.pending = rest
	default:
		l.pending = append(l.pending, o.changed)
	}
}

// choose picks pending changes, and with each one all earlier changes to its names.
func (l *crashLog) choose(pick func(change) bool) []bool {
	kept := make([]bool, len(l.pending))
	names := map[place]bool{}
	for i := len(l.pending) - 1; i >= 0; i-- {
		c := l.pending[i]
		kept[i] = pick(c) // always called: it may draw a random number
		for _, e := range c.cells {
			kept[i] = kept[i] || names[e.place]
		}
		for _, e := range c.cells {
			names[e.place] = names[e.place] || kept[i]
		}
	}
	return kept
}

// CrashImage returns the disk as a power cut may leave it after the first numOps operations (0 to
// NumOps). Everything on it is durable. It depends only on the operations, numOps and s; the image
// and m do not affect each other. Making many images is fastest with ascending numOps.
func (m *Mem) CrashImage(numOps int, s Survival) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &m.crash
	l.moveTo(m.ops, numOps)
	var t *tear
	if s > KeepUnsynced {
		t = newTear(uint64(s), uint64(numOps))
	}

	dirs := cloneDirs(l.dirs)
	if s != LoseUnsynced && len(l.pending) > 0 {
		kept := l.choose(func(change) bool { return t == nil || t.keepsEntry() })
		for i, c := range l.pending {
			if kept[i] {
				c.apply(dirs)
			}
		}
	}

	// Renumber the reachable nodes, in their old order.
	renumber := make([]int, len(l.files))
	var reach func(dir int)
	reach = func(dir int) {
		renumber[dir] = 1
		for _, node := range dirs[dir] {
			if m.nodes[node].dir {
				reach(node)
			} else {
				renumber[node] = 1
			}
		}
	}
	reach(rootNode)
	img := &Mem{nodes: []*memNode{nil}, dirs: map[int]map[string]int{}}
	for node, reached := range renumber {
		if reached == 0 {
			continue
		}
		renumber[node] = len(img.nodes)
		n := &memNode{dir: m.nodes[node].dir}
		if !n.dir {
			n.data = l.files[node].image(m.nodes[node].data, s, t)
			if m.nodes[node].log && l.files[node].grown {
				n.data = zeroTail(n.data, s, t)
			}
		}
		img.nodes = append(img.nodes, n)
	}
	for dir, entries := range dirs {
		if renumber[dir] == 0 {
			continue
		}
		for name, node := range entries {
			entries[name] = renumber[node]
		}
		img.dirs[renumber[dir]] = entries
	}
	for node, n := range img.nodes {
		if node > 0 && n.dir && img.dirs[node] == nil {
			img.dirs[node] = map[string]int{}
		}
	}
	img.crash.begin(img)
	return img
}

// logWindow is the size of preallocated space: zeros extend a log to a multiple of it.
const logWindow = 64 << 10

// zeroTail returns a log's bytes, followed by zeros that stand for preallocated space.
func zeroTail(data []byte, s Survival, t *tear) []byte {
	n := len(data) + logWindow - len(data)%logWindow
	switch {
	case s == LoseUnsynced:
		return data
	case t == nil:
	case t.rng.IntN(2) == 0:
		return data
	case t.rng.IntN(4) == 0:
		n = len(data) + t.rng.IntN(n-len(data)+1)
	}
	return append(data[:len(data):len(data)], make([]byte, n-len(data))...)
}

// image returns the file's bytes after the power cut.
func (f fileState) image(data []byte, s Survival, t *tear) []byte {
	if s == LoseUnsynced || f.size <= max(f.synced, f.lostEnd) {
		return f.fill(data, f.synced)
	}
	if s == KeepUnsynced {
		return f.fill(data, f.size)
	}
	return t.file(f, data)
}

// fill returns the first length bytes, with zeros where they were lost.
func (f fileState) fill(data []byte, length int64) []byte {
	data = data[:length:length]
	if len(f.holes) == 0 && (f.lostEnd <= f.synced || length <= f.synced) {
		return data // shared
	}
	data = slices.Clone(data)
	for _, h := range f.holes {
		clear(data[h.from:h.to])
	}
	if f.lostEnd > f.synced {
		clear(data[min(f.synced, length):min(f.lostEnd, length)])
	}
	return data
}

// tear decides at random. The probabilities are random, too, and differ between images, so that
// extremes occur.
type tear struct {
	rng         *rand.Rand
	pcg         *rand.PCG
	entryChance float64
}

func newTear(seed, numOps uint64) *tear {
	pcg := rand.NewPCG(seed, numOps)
	t := &tear{rng: rand.New(pcg), pcg: pcg}
	t.entryChance = [...]float64{0, 0.1, 0.5, 0.5, 0.9, 1}[t.rng.IntN(6)]
	return t
}

func (t *tear) keepsEntry() bool { return t.rng.Float64() < t.entryChance }

// file returns what is left of a file, some of whose bytes are not durable.
func (t *tear) file(f fileState, data []byte) []byte {
	from := max(f.synced, f.lostEnd)
	switch t.rng.IntN(8) {
	case 0:
		return f.fill(data, f.synced)
	case 1:
		return f.fill(data, f.size)
	case 2: // written in order and cut off anywhere
		return f.fill(data, from+t.rng.Int64N(f.size-from+1))
	}
	length := f.size
	switch t.rng.IntN(4) {
	case 0:
		length = from + t.rng.Int64N(f.size-from+1)
	case 1:
		length = max(from, length/sectorSize*sectorSize)
	}
	keep := [...]float64{0.1, 0.5, 0.9, 0.97}[t.rng.IntN(4)]
	garbage := [...]float64{0, 0.5, 1}[t.rng.IntN(3)]
	out := slices.Clone(f.fill(data, length))
	for at := from; at < length; {
		end := min(length, (at/sectorSize+1)*sectorSize)
		if t.rng.Float64() >= keep {
			if t.rng.Float64() < garbage {
				t.garbage(out[at:end])
			} else {
				clear(out[at:end])
			}
		}
		at = end
	}
	return slices.Clip(out)
}

func (t *tear) garbage(b []byte) {
	for len(b) > 0 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], t.pcg.Uint64())
		b = b[copy(b, word[:]):]
	}
}
