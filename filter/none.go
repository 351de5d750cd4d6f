package filter

import "errors"

// noneFamily is never on disk, as there are no units to store it with.
const noneFamily = "none"

type nonePolicy struct{}

// None returns the policy for no filter. Its writers accept keys, but Finish returns no
// units. Open always fails.
func None() Policy { return nonePolicy{} }

// IsNone reports whether p is nil or None.
func IsNone(p Policy) bool {
	if p == nil {
		return true
	}
	_, ok := p.(nonePolicy)
	return ok
}

var errNone = errors.New("filter: the none policy has no filters to open")

func (nonePolicy) Name() string                  { return "none" }
func (nonePolicy) Family() string                { return noneFamily }
func (nonePolicy) NewWriter() Writer             { return new(noneWriter) }
func (nonePolicy) Open([][]byte) (Reader, error) { return nil, errNone }

type noneWriter struct{ n int }

func (w *noneWriter) Add(Key)      { w.n++ }
func (w *noneWriter) NumKeys() int { return w.n }
func (w *noneWriter) Finish() ([][]byte, error) {
	w.n = 0
	return nil, nil
}
