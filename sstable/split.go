package sstable

import "bytes"

// keySplit is a way to split the keys of a table's range filter.
type keySplit struct {
	name    string
	length  func(key []byte) int // of the prefix
	symbols *symbols
	whole   int // number of keys with the previous key's prefix if the numbers of both contain all bytes after it
}

// delimiters are the bytes after which prefixes may end.
const delimiters = "/:|#,;=._-\x00\t @~"

// enoughWhole is the percentage of keys counted in keySplit.whole at which split stops trying
// delimiters.
const enoughWhole = 90

// split returns the split of a prefixer or, if that is nil, the best one for the keys: at a fixed
// length, or after a delimiter if that makes whole larger by more than a tenth of the keys.
func (k *rangeKeys) split(prefixer Prefixer) keySplit {
	if prefixer != nil {
		return k.splitBy(prefixer.Name(), prefixer.PrefixLen)
	}
	at := k.splitAt()
	best := k.splitBy(fixedSplitName(at), func([]byte) int { return at })
	enough := len(k.ends) * enoughWhole / 100
	for i, n := range k.countDelimiters() {
		if best.whole >= enough {
			break
		}
		if n > 0 {
			p := PrefixUpTo(delimiters[i], n)
			if s := k.splitBy(p.Name(), p.PrefixLen); s.whole > best.whole+len(k.ends)/10 {
				best = s
			}
		}
	}
	return best
}

// countDelimiters returns, for each delimiter, the minimum number that a key has.
func (k *rangeKeys) countDelimiters() (least [len(delimiters)]int) {
	first := true
	k.each(func(key []byte) {
		for i := range least {
			if first || least[i] > 0 {
				n := bytes.Count(key, []byte{delimiters[i]})
				if first || n < least[i] {
					least[i] = n
				}
			}
		}
		first = false
	})
	return least
}

func (k *rangeKeys) splitBy(name string, length func(key []byte) int) keySplit {
	s := keySplit{name: name, length: length}
	var sets byteSets
	k.each(func(key []byte) {
		if n := length(key); n >= 0 && n <= len(key) {
			sets.add(key[n:])
		}
	})
	s.symbols = sets.symbols()
	var last []byte // the prefix of the previous key, nil if its number does not contain all bytes after it
	k.each(func(key []byte) {
		n := length(key)
		if n < 0 || n > len(key) || len(key)-n > len(s.symbols.positions) {
			last = nil
			return
		}
		if last != nil && bytes.Equal(key[:n], last) {
			s.whole++
		}
		last = key[:n:n]
	})
	return s
}
