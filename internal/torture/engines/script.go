package engines

import (
	"fmt"

	"github.com/siftdb/sift/internal/torture/damage"
)

// engine makes databases and reads them after they were damaged.
type engine interface {
	damage.Engine
	// Make executes a script, closes the database and returns its files.
	Make(*script) (damage.Files, error)
}

// script is what every engine stores: tables from two flushes, and some writes after the
// last. How much of it remains in a log when the database is closed depends on the engine.
type script struct {
	steps []step
	want  map[string]string
	keys  []string // to look up: all, and some absent ones
}

// step sets a key, deletes it if value is empty, or flushes.
type step struct {
	key, value string
	flush      bool
}

func newScript() *script {
	w := &script{want: map[string]string{}}
	for round, n := range []int{40, 25, 12} {
		for i := range n {
			s := step{key: fmt.Sprintf("key%03d", (i*7+round)%100), value: fmt.Sprintf("v%d.%d.%0*x", round, i, i%20, i*i*7919)}
			if i%9 == 8 {
				s.value = ""
				delete(w.want, s.key)
			} else {
				w.want[s.key] = s.value
			}
			w.steps = append(w.steps, s)
		}
		if round < 2 {
			w.steps = append(w.steps, step{flush: true})
		}
	}
	for i := range 100 {
		w.keys = append(w.keys, fmt.Sprintf("key%03d", i), fmt.Sprintf("key%03dx", i))
	}
	return w
}
