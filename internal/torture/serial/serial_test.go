package serial

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// parse reads a history: transactions, one per line, as "name start end op...". An
// operation is a+5:k (append 5 to k), w5:k, r5:k (0: nothing) or r[1,2]:k. A transaction
// whose name ends in ! was aborted, one in ? has an unknown outcome.
func parse(t *testing.T, text string) (txns []Txn) {
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return n
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		tx := Txn{Name: f[0], Start: int64(number(f[1])), End: int64(number(f[2]))}
		switch {
		case strings.HasSuffix(f[0], "!"):
			tx.Outcome = Aborted
		case strings.HasSuffix(f[0], "?"):
			tx.Outcome = Unknown
		}
		for _, op := range f[3:] {
			what, key, _ := strings.Cut(op, ":")
			o := Op{Key: key}
			switch {
			case strings.HasPrefix(what, "a+"):
				o.Kind, o.Value = Append, number(what[2:])
			case strings.HasPrefix(what, "w"):
				o.Kind, o.Value = Write, number(what[1:])
			case strings.HasPrefix(what, "r["):
				for v := range strings.SplitSeq(strings.Trim(what[1:], "[]"), ",") {
					if v != "" {
						o.List = append(o.List, number(v))
					}
				}
			default:
				o.Value = number(what[1:])
			}
			tx.Ops = append(tx.Ops, o)
		}
		txns = append(txns, tx)
	}
	return txns
}

// TestPlanted checks that serializable histories are accepted, and that the error for others names
// the anomaly.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		desc      string
		registers bool
		want      string // in the error; "": none
		history   string
	}{
		{"one after another", false, "", `
			a 0 1 r[]:x a+1:x
			b 2 3 r[1]:x a+2:x r[]:y
			c 4 5 r[1,2]:x`},
		{"at once, in some order", false, "", `
			a 0 9 r[2]:x a+1:x
			b 0 9 r[]:x a+2:x
			c 5 9 r[2]:x r[]:y`},
		{"an abort that nobody sees", false, "", `
			a! 0 1 a+1:x
			b? 0 1 a+2:x
			c 2 3 r[]:x`},
		{"of unknown outcome, and seen", false, "", `
			a? 0 1 r[]:y a+1:x
			b 2 3 r[1]:x a+2:y`},
		{"aborted read", false, "G1a", `
			a! 0 1 a+1:x
			b 2 3 r[1]:x`},
		{"intermediate read", false, "G1b", `
			a 0 9 a+1:x a+2:x
			b 0 9 r[1]:x`},
		{"does not read its own append", false, "internal", `
			a 0 9 a+1:x r[]:x`},
		{"reads another moment the second time", false, "internal", `
			a 0 1 a+1:x
			b 0 9 r[]:x r[1]:x`},
		{"incompatible orders", false, "incompatible", `
			a 0 9 a+1:x
			b 0 9 a+2:x
			c 0 9 r[1,2]:x
			d 0 9 r[2,1]:x`},
		{"a value from nowhere", false, "nowhere", `
			a 0 9 r[7]:x`},
		{"dirty write", false, "G0", `
			a 0 9 a+1:x a+1:y
			b 0 9 a+2:x a+2:y
			c 20 21 r[1,2]:x r[2,1]:y`},
		{"circular reads", false, "G1c", `
			a 0 9 a+1:x r[1]:y
			b 0 9 a+1:y r[1]:x`},
		{"lost update", false, "G", `
			a 0 9 r[]:x a+1:x
			b 0 9 r[]:x a+2:x
			c 20 21 r[1,2]:x`},
		{"read skew", false, "G-single", `
			a 0 9 a+1:x a+1:y
			b 0 9 r[1]:x r[]:y`},
		{"write skew", false, "G2", `
			a 0 9 r[]:x a+1:y
			b 0 9 r[]:y a+1:x
			c 20 21 r[1]:x r[1]:y`},
		{"write skew, unseen", false, "G2", `
			a 0 9 r[]:x a+1:y
			b 0 9 r[]:y a+1:x`},
		{"read-only anomaly", false, "G2", `
			deposit 1 3 r[]:y a+1:y
			report 4 5 r[]:x r[1]:y
			withdraw 0 9 r[]:x r[]:y a+1:x`},
		{"a lost write", false, "G-single, with the order in time", `
			a 0 1 a+1:x
			b 2 3 r[]:x`},
		{"half of a transaction", false, "G-single", `
			a? 0 1 a+1:x a+1:y
			b 2 3 r[1]:x r[]:y`},
		{"a read of the past", false, "order in time", `
			a 0 1 a+1:x
			b 2 3 a+2:x
			c 4 5 r[1]:x
			d 4 5 r[1,2]:x`},

		{"registers, one after another", true, "", `
			a 0 1 r0:x w1:x
			b 2 3 r1:x w2:x
			c 4 5 r2:x r0:y`},
		{"registers, blind writes at once", true, "", `
			a 0 9 w1:x
			b 0 9 w2:x
			c 20 21 r1:x`},
		{"registers, lost update", true, "G", `
			a 0 9 r0:x w1:x
			b 0 9 r0:x w2:x
			c 0 1 r0:x`},
		{"registers, write skew", true, "G2", `
			a 0 9 r0:x w1:y
			b 0 9 r0:y w1:x`},
		{"registers, read skew", true, "G-single", `
			a 0 9 w1:x w1:y
			b 0 9 r1:x r0:y`},
		{"registers, a stale read", true, "order in time", `
			a 0 1 w1:x
			b 2 3 w2:x
			c 4 5 r1:x`},
		{"registers, aborted read", true, "G1a", `
			a! 0 1 w1:x
			b 2 3 r1:x`},
		{"registers, intermediate read", true, "G1b", `
			a 0 9 w1:x w2:x
			b 0 9 r1:x`},
		{"registers, own write", true, "internal", `
			a 0 9 w1:x r0:x`},
	} {
		check := Lists
		if c.registers {
			check = Registers
		}
		err := check(parse(t, c.history))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: want %q, got: %v", c.desc, c.want, err)
		}
	}
}

// TestRandom: histories of a store that runs one transaction after another have no anomaly;
// with a transaction that reads an older state and writes, most have one.
func TestRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 18))
	found := 0
	for round := range 300 {
		stale := round%2 == 1
		state := map[string][]int{}
		var older map[string][]int
		var txns []Txn
		for n := range 60 {
			if n == 30 {
				older = map[string][]int{}
				for k, l := range state {
					older[k] = l[:len(l):len(l)]
				}
			}
			tx := Txn{Name: strconv.Itoa(n), Start: int64(10 * n), End: int64(10*n + 9)}
			from := state
			if stale && n == 40 {
				from = older
			}
			mine := map[string][]int{}
			for range 1 + rng.IntN(4) {
				k := string(rune('a' + rng.IntN(5)))
				if rng.IntN(2) == 0 {
					tx.Ops = append(tx.Ops, Op{Key: k, List: append(from[k][:len(from[k]):len(from[k])], mine[k]...)})
				} else {
					v := len(txns)*10 + len(tx.Ops) + 1
					tx.Ops = append(tx.Ops, Op{Kind: Append, Key: k, Value: v})
					mine[k] = append(mine[k], v)
				}
			}
			for k, l := range mine {
				state[k] = append(state[k][:len(state[k]):len(state[k])], l...)
			}
			txns = append(txns, tx)
		}
		rng.Shuffle(len(txns), func(i, j int) { txns[i], txns[j] = txns[j], txns[i] })
		err := Lists(txns)
		if !stale && err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if stale && err != nil {
			found++
		}
	}
	if found < 80 {
		t.Errorf("an old read is found in %d of 150 histories, want at least 80", found)
	}
}
