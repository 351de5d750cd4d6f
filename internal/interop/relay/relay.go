// Package relay passes a directory from one engine to the next, each in a process of its own that
// may be killed. This is the engine's side: Serve executes commands that arrive as lines of JSON.
package relay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Op sets a key, or deletes it.
type Op struct {
	Key    []byte
	Value  []byte
	Delete bool
}

// Request is a command: Write, Get, Scan, Compact or Close, whichever is set.
type Request struct {
	Write   []Op   // one batch
	Sync    bool   // of Write
	Get     []byte // the value of a key
	Scan    bool   // all entries
	Compact bool
	Close   bool // the last request
}

// Reply is the answer to a Request.
type Reply struct {
	Found   bool
	Value   []byte
	Entries []Op
	Err     string
}

// Store is a database that an engine has open.
type Store interface {
	Write(batch []Op, sync bool) error
	Get(key []byte) (value []byte, found bool, err error)
	Scan(fn func(key, value []byte)) error // as Walk does
	Compact() error
	Close() error
}

// Serve answers requests until one closes the store or in ends.
func Serve(in io.Reader, out io.Writer, s Store) error {
	requests, replies := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var q Request
		if err := requests.Decode(&q); err != nil {
			return err
		}
		r, err := answer(s, &q)
		if err != nil {
			r.Err = err.Error()
		}
		if err := replies.Encode(r); err != nil || q.Close {
			return err
		}
	}
}

func answer(s Store, q *Request) (r Reply, err error) {
	switch {
	case q.Write != nil:
		err = s.Write(q.Write, q.Sync)
	case q.Get != nil:
		r.Value, r.Found, err = s.Get(q.Get)
	case q.Scan:
		err = s.Scan(func(key, value []byte) {
			r.Entries = append(r.Entries, Op{Key: append([]byte{}, key...), Value: append([]byte{}, value...)})
		})
	case q.Compact:
		err = s.Compact()
	case q.Close:
		err = s.Close()
	default:
		err = fmt.Errorf("an empty request")
	}
	return r, err
}

// Cursor is an iterator of any engine.
type Cursor interface {
	First() bool
	Last() bool
	Next() bool
	Prev() bool
	Key() []byte
	Value() []byte
}

// Walk calls fn for all entries, forward, and then iterates backward: it must find the same ones.
func Walk(it Cursor, fn func(key, value []byte)) error {
	type entry struct{ key, value string }
	var all []entry
	for ok := it.First(); ok; ok = it.Next() {
		fn(it.Key(), it.Value())
		all = append(all, entry{string(it.Key()), string(it.Value())})
	}
	left := len(all)
	for ok := it.Last(); ok; ok = it.Prev() {
		e := entry{string(it.Key()), string(it.Value())}
		if left == 0 || e != all[left-1] {
			return fmt.Errorf("%d entries forward; backward, %d before the end, there is %q", len(all), len(all)-left, e.key)
		}
		left--
	}
	if left > 0 {
		return fmt.Errorf("%d entries forward and %d backward", len(all), len(all)-left)
	}
	return nil
}
