package filter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// family is a filter format: its name on disk, and the function that opens its filters.
type family struct {
	name string
	open func(units [][]byte) (Reader, error)
}

// families are the families that Open can open. Do not remove a line while filters of its
// family may be on disk.
var families = [...]family{
	{bloomFamily, openBloom},
	{rocksdbFamily, openRocksDB},
	{fuseFamily, openFuse},
	{ribbonFamily, openRibbon},
}

// parser parses the names of a policy.
type parser struct {
	word  string // the name up to the parenthesis
	parse func(args []string) (Policy, error)
}

// parsers are the policies that Parse knows.
var parsers = [...]parser{
	{"bloom", parseBloom},
	{"rocksdb-bloom", parseRocksDB},
	{"fuse", parseFuse},
	{"ribbon", parseRibbon},
	{"none", parseNone},
}

// Open opens the units of a filter of any unkeyed family of this package, as Policy.Open does. For
// corrupt units its error matches ErrDamaged, for other families ErrUnknownFamily.
func Open(family string, units [][]byte) (Reader, error) {
	for i := range families {
		if families[i].name == family {
			return families[i].open(units)
		}
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownFamily, family)
}

// Families returns the names of the families that Open knows.
func Families() []string {
	names := make([]string, len(families))
	for i := range families {
		names[i] = families[i].name
	}
	return names
}

// Parse returns the policy with the given name, a word followed by arguments in parentheses.
// Parse(p.Name()) equals p for every policy of this package that is not keyed. An argument out of
// the bounds of a policy, which its function would clamp, is an error. The names are:
//
//	bloom(10)            Bloom, bits per key
//	rocksdb-bloom(10)    RocksDBBloom, bits per key
//	fuse(8)              Fuse, bits per fingerprint
//	ribbon(10)           Ribbon, bits per key
//	ribbon(fpr=0.001)    RibbonFPR, false positive rate
//	none                 None
func Parse(name string) (Policy, error) {
	word, args, err := splitName(name)
	if err != nil {
		return nil, fmt.Errorf("filter: policy %q: %w", name, err)
	}
	for i := range parsers {
		if parsers[i].word == word {
			p, err := parsers[i].parse(args)
			if err != nil {
				return nil, fmt.Errorf("filter: policy %q: %w", name, err)
			}
			return p, nil
		}
	}
	return nil, fmt.Errorf("filter: policy %q is unknown", name)
}

// splitName splits "word(a,b)" into its word and arguments and trims spaces.
func splitName(name string) (word string, args []string, err error) {
	word, rest, found := strings.Cut(strings.TrimSpace(name), "(")
	word = strings.TrimSpace(word)
	if !found {
		return word, nil, nil
	}
	inside, ok := strings.CutSuffix(rest, ")")
	if !ok {
		return "", nil, errors.New("no closing parenthesis at the end")
	}
	if strings.TrimSpace(inside) == "" {
		return word, nil, nil
	}
	args = strings.Split(inside, ",")
	for i := range args {
		args[i] = strings.TrimSpace(args[i])
	}
	return word, args, nil
}

func parseNone(args []string) (Policy, error) {
	if len(args) != 0 {
		return nil, errors.New("none takes no argument")
	}
	return None(), nil
}

// parseBits reads the one argument of a policy that takes bits per key.
func parseBits(args []string, lo, hi float64) (float64, error) {
	if len(args) != 1 {
		return 0, errors.New("want one argument, the bits per key")
	}
	b, err := strconv.ParseFloat(args[0], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", args[0])
	}
	if !(b >= lo && b <= hi) {
		return 0, fmt.Errorf("bits per key %s is outside [%s, %s]", args[0], formatFloat(lo), formatFloat(hi))
	}
	return b, nil
}

// formatFloat returns the shortest text that parses as x.
func formatFloat(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
