package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config describes a filter as data: as JSON, or as text such as
//
//	bloom(items=1e6,fpr=0.001)
//	bloom(bits=9585059,hashes=7,scheme=blocked,seed=42)
//	counting(items=1e6,fpr=0.01)
//	cuckoo(items=1e6,fpr=0.001)
//	scalable(items=1000,fpr=0.001,growth=2)
//	generations(items=1e6,fpr=0.001,span=1h,generations=4)
//	dedup(items=1e6,fpr=0.001,window=true)
//	rotating(items=1e6,fpr=0.001,every=1h,max-fpr=0.01)
//	pair(added=bloom(items=1e6,fpr=0.001),removed=bloom(items=1000,fpr=0.0001))
//	sharded(shards=16,of=counting(items=7e4,fpr=0.01))
//
// The fields are the options of the kind's constructor; those left out have its defaults, if any.
// Parse(c.String()) returns an equal Config. In JSON a Config is an object with the kind and the
// same field names, or the text as a string:
//
//	{"kind": "bloom", "items": 1000000, "fpr": 0.001}
type Config struct {
	Kind        string   `json:"kind"`
	Items       uint64   `json:"items,omitempty"`
	FPR         float64  `json:"fpr,omitempty"`
	Bits        uint64   `json:"bits,omitempty"`
	Hashes      int      `json:"hashes,omitempty"`
	Scheme      Scheme   `json:"scheme,omitempty"`
	Seed        uint64   `json:"seed,omitempty"`
	Growth      int      `json:"growth,omitempty"`
	Generations int      `json:"generations,omitempty"`
	Span        Duration `json:"span,omitempty"`
	Window      bool     `json:"window,omitempty"`
	Every       Duration `json:"every,omitempty"`
	Check       Duration `json:"check,omitempty"`
	MaxFPR      float64  `json:"max-fpr,omitempty"`
	Shards      int      `json:"shards,omitempty"`
	Of          *Config  `json:"of,omitempty"`
	Added       *Config  `json:"added,omitempty"`
	Removed     *Config  `json:"removed,omitempty"`
}

// Duration is a time.Duration that is text in JSON, "1h30m0s".
type Duration time.Duration

// String returns what time.Duration's String does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns what String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// configKinds are the kinds of Config and the fields that each has.
var configKinds = map[string][]string{
	"bloom":       {"items", "fpr", "bits", "hashes", "scheme", "seed"},
	"counting":    {"items", "fpr", "seed"},
	"cuckoo":      {"items", "fpr", "seed"},
	"scalable":    {"items", "fpr", "growth", "seed"},
	"generations": {"items", "fpr", "span", "generations", "scheme", "seed"},
	"dedup":       {"items", "fpr", "window", "span", "seed"},
	"rotating":    {"items", "fpr", "every", "check", "max-fpr", "scheme", "seed"},
	"pair":        {"added", "removed"},
	"sharded":     {"shards", "of"},
}

// configField is one field of a Config as text.
type configField struct {
	name  string
	value func(c *Config) string // "" if it is zero
	set   func(c *Config, s string) error
}

func field[V comparable](name string, at func(c *Config) *V, format func(V) string, parse func(string) (V, error)) configField {
	return configField{
		name: name,
		value: func(c *Config) string {
			var zero V
			if v := *at(c); v != zero {
				return format(v)
			}
			return ""
		},
		set: func(c *Config, s string) (err error) {
			*at(c), err = parse(s)
			return err
		},
	}
}

// configFields are all fields but Kind, in the order of String.
var configFields []configField

func init() { // not in the declaration: the fields refer to Parse, which uses them
	formatUint := func(v uint64) string { return strconv.FormatUint(v, 10) }
	formatFloat := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	parseFloat := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	duration := func(s string) (Duration, error) { d, err := time.ParseDuration(s); return Duration(d), err }
	nested := func(s string) (*Config, error) {
		c, err := Parse(s)
		return &c, err
	}
	configFields = []configField{
		field("shards", func(c *Config) *int { return &c.Shards }, strconv.Itoa, strconv.Atoi),
		field("of", func(c *Config) **Config { return &c.Of }, (*Config).String, nested),
		field("added", func(c *Config) **Config { return &c.Added }, (*Config).String, nested),
		field("removed", func(c *Config) **Config { return &c.Removed }, (*Config).String, nested),
		field("items", func(c *Config) *uint64 { return &c.Items }, formatUint, parseCount),
		field("fpr", func(c *Config) *float64 { return &c.FPR }, formatFloat, parseFloat),
		field("bits", func(c *Config) *uint64 { return &c.Bits }, formatUint, parseCount),
		field("hashes", func(c *Config) *int { return &c.Hashes }, strconv.Itoa, strconv.Atoi),
		field("growth", func(c *Config) *int { return &c.Growth }, strconv.Itoa, strconv.Atoi),
		field("span", func(c *Config) *Duration { return &c.Span }, Duration.String, duration),
		field("generations", func(c *Config) *int { return &c.Generations }, strconv.Itoa, strconv.Atoi),
		field("window", func(c *Config) *bool { return &c.Window }, strconv.FormatBool, strconv.ParseBool),
		field("every", func(c *Config) *Duration { return &c.Every }, Duration.String, duration),
		field("check", func(c *Config) *Duration { return &c.Check }, Duration.String, duration),
		field("max-fpr", func(c *Config) *float64 { return &c.MaxFPR }, formatFloat, parseFloat),
		field("scheme", func(c *Config) *Scheme { return &c.Scheme }, Scheme.name, parseScheme),
		field("seed", func(c *Config) *uint64 { return &c.Seed }, formatUint, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }),
	}
}

// parseCount reads a whole number such as 1000000 or 1e6.
func parseCount(s string) (uint64, error) {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return n, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, err
	}
	if !(v >= 0 && v < 1<<63) || v != float64(uint64(v)) {
		return 0, errors.New("not a whole number")
	}
	return uint64(v), nil
}

var schemeNames = [...]string{Scattered: "scattered", Blocked: "blocked", Guava: "guava", GuavaMitz32: "guava-mitz32"}

func (s Scheme) name() string {
	if int(s) < len(schemeNames) {
		return schemeNames[s]
	}
	return strconv.Itoa(int(s))
}

func parseScheme(text string) (Scheme, error) {
	i := slices.Index(schemeNames[:], text)
	if i < 0 {
		return 0, fmt.Errorf("%q is none of %s", text, strings.Join(schemeNames[:], ", "))
	}
	return Scheme(i), nil
}

// MarshalText returns the scheme's name in a Config: "scattered", "blocked", "guava",
// "guava-mitz32".
func (s Scheme) MarshalText() ([]byte, error) {
	if int(s) >= len(schemeNames) {
		return nil, optionError("Scheme", "%d is unknown", s)
	}
	return []byte(s.name()), nil
}

// UnmarshalText reads what MarshalText returns.
func (s *Scheme) UnmarshalText(text []byte) (err error) {
	*s, err = parseScheme(string(text))
	return err
}

// Parse reads the text of a Config. An unknown kind, a field that the kind does not have, a value
// that cannot be parsed, and a text of more than 4,096 bytes give an *OptionError. Only Build
// checks whether the values are valid.
func Parse(s string) (Config, error) {
	if len(s) > maxConfig {
		return Config{}, optionError("configuration", "of %d bytes is too long", len(s))
	}
	word, rest, found := strings.Cut(strings.TrimSpace(s), "(")
	c := Config{Kind: strings.TrimSpace(word)}
	inside, ok := strings.CutSuffix(rest, ")")
	if found && !ok {
		return Config{}, optionError("configuration", "%q has no closing parenthesis", s)
	}
	seen := map[string]bool{}
	for _, arg := range splitArgs(inside) {
		name, value, ok := strings.Cut(arg, "=")
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(configFields, func(f configField) bool { return f.name == name })
		switch {
		case !ok:
			return Config{}, optionError("configuration", "%q has %q instead of name=value", s, strings.TrimSpace(arg))
		case i < 0 || !slices.Contains(configKinds[c.Kind], name):
			if err := c.check(); err != nil { // an unknown kind is reported first
				return Config{}, err
			}
			return Config{}, optionError(name, "is not a field of %s; it has %s", c.Kind, strings.Join(configKinds[c.Kind], ", "))
		case seen[name]:
			return Config{}, optionError(name, "is given twice")
		}
		seen[name] = true
		if err := configFields[i].set(&c, strings.TrimSpace(value)); err != nil {
			if oe := (*OptionError)(nil); errors.As(err, &oe) { // of a nested configuration
				return Config{}, err
			}
			return Config{}, optionError(name, "%q: %v", strings.TrimSpace(value), numError(err))
		}
	}
	return c, c.check()
}

// maxConfig bounds the length of a configuration, as text and as JSON, and so how deep
// configurations nest.
const maxConfig = 4096

// numError removes the function's name from strconv's errors.
func numError(err error) error {
	if n := (*strconv.NumError)(nil); errors.As(err, &n) {
		return n.Err
	}
	return err
}

// splitArgs splits at the commas outside parentheses.
func splitArgs(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	var args []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				args = append(args, s[from:i])
				from = i + 1
			}
		}
	}
	return append(args, s[from:])
}

// check reports an unknown kind, and fields that the kind does not have.
func (c *Config) check() error {
	fields, ok := configKinds[c.Kind]
	if !ok {
		return optionError("kind", "%q is none of %s", c.Kind, strings.Join(Kinds(), ", "))
	}
	for _, f := range configFields {
		if f.value(c) != "" && !slices.Contains(fields, f.name) {
			return optionError(f.name, "is not a field of %s; it has %s", c.Kind, strings.Join(fields, ", "))
		}
	}
	return nil
}

// Kinds returns the kinds that a Config may have, sorted.
func Kinds() []string {
	var names []string
	for name := range configKinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// String returns the text that Parse reads. Fields that are zero are omitted.
func (c *Config) String() string {
	var args []string
	for _, f := range configFields {
		if v := f.value(c); v != "" {
			args = append(args, f.name+"="+v)
		}
	}
	return c.Kind + "(" + strings.Join(args, ",") + ")"
}

// UnmarshalJSON reads an object, in which unknown fields are errors, or a string that Parse
// reads; at most 4,096 bytes.
func (c *Config) UnmarshalJSON(data []byte) error {
	if len(data) > maxConfig {
		return optionError("configuration", "of %d bytes is too long", len(data))
	}
	var text string
	if json.Unmarshal(data, &text) == nil {
		read, err := Parse(text)
		if err == nil {
			*c = read
		}
		return err
	}
	type plain Config // without UnmarshalJSON
	var p plain
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return err
	}
	read := Config(p)
	if err := read.check(); err != nil {
		return err
	}
	*c = read
	return nil
}

// BuildOptions are what a filter may need in addition to a Config.
type BuildOptions[T any] struct {
	// Funnel appends the bytes of an element; see BloomOptions.
	Funnel func(dst []byte, v T) []byte
	// Now returns the time, for generations and dedup; time.Now if nil.
	Now func() time.Time
	// Source and Count are those of a rotating filter; see RotatingOptions. If that is split, each
	// shard takes its elements from the source, and an equal part of the count.
	Source func(ctx context.Context) iter.Seq2[T, error]
	Count  func(ctx context.Context) (uint64, error)
}

// Build returns an empty filter, depending on the kind a *Bloom[T], *Counting[T] and so on, and for
// sharded a *Sharded[T, Filter[T]]. All of them are Adders or FallibleAdders; see TryAdd. An
// invalid configuration gives an *OptionError.
func Build[T any](c Config, o BuildOptions[T]) (Filter[T], error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	bloom := func(c Config) BloomOptions[T] {
		return BloomOptions[T]{Items: c.Items, FPR: c.FPR, Bits: c.Bits, Hashes: c.Hashes, Scheme: c.Scheme, Seed: c.Seed, Funnel: o.Funnel}
	}
	switch c.Kind {
	case "bloom":
		return built(NewBloom(bloom(c)))
	case "counting":
		return built(NewCounting(CountingOptions[T]{Items: c.Items, FPR: c.FPR, Seed: c.Seed, Funnel: o.Funnel}))
	case "cuckoo":
		return built(NewCuckoo(CuckooOptions[T]{Items: c.Items, FPR: c.FPR, Seed: c.Seed, Funnel: o.Funnel}))
	case "scalable":
		return built(NewScalable(ScalableOptions[T]{Items: c.Items, FPR: c.FPR, Growth: c.Growth, Seed: c.Seed, Funnel: o.Funnel}))
	case "generations":
		return built(NewGenerations(GenerationsOptions[T]{
			Items: c.Items, FPR: c.FPR, Span: time.Duration(c.Span), Generations: c.Generations, Scheme: c.Scheme,
			Seed: c.Seed, Funnel: o.Funnel, Now: o.Now,
		}))
	case "dedup":
		return built(NewDedup(DedupOptions[T]{
			Items: c.Items, FPR: c.FPR, Window: c.Window, Span: time.Duration(c.Span), Seed: c.Seed, Funnel: o.Funnel, Now: o.Now,
		}))
	case "rotating":
		return built(NewRotating(RotatingOptions[T]{
			Items: c.Items, FPR: c.FPR, Every: time.Duration(c.Every), Check: time.Duration(c.Check), MaxFPR: c.MaxFPR,
			Scheme: c.Scheme, Seed: c.Seed, Funnel: o.Funnel, Source: o.Source, Count: o.Count,
		}))
	case "pair":
		for name, part := range map[string]*Config{"added": c.Added, "removed": c.Removed} {
			if part == nil || part.Kind != "bloom" {
				return nil, optionError(name, "is not a bloom(...)")
			}
			if err := part.check(); err != nil {
				return nil, err
			}
		}
		return built(NewPair(bloom(*c.Added), bloom(*c.Removed)))
	}
	if c.Of == nil || c.Of.Kind == "sharded" {
		return nil, optionError("of", "is not a filter to be split")
	}
	return built(NewSharded(ShardedOptions[T]{Shards: c.Shards, Funnel: o.Funnel}, func(i int) (Filter[T], error) {
		shard, err := o.ofShard(i, c.Shards)
		if err != nil {
			return nil, err
		}
		return Build(*c.Of, shard)
	}))
}

// ofShard returns the options for shard i of n.
func (o BuildOptions[T]) ofShard(i, n int) (BuildOptions[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return o, err
	}
	if source := o.Source; source != nil {
		o.Source = func(ctx context.Context) iter.Seq2[T, error] {
			return func(yield func(T, error) bool) {
				for v, err := range source(ctx) {
					if (err != nil || shardOf(key.Sum64(v), n) == i) && !yield(v, err) {
						return
					}
				}
			}
		}
	}
	if count := o.Count; count != nil {
		o.Count = func(ctx context.Context) (uint64, error) {
			all, err := count(ctx)
			return all/uint64(n) + 1, err
		}
	}
	return o, nil
}

// built converts a constructor's result to an interface, which is nil if there is an error.
func built[T any, F Filter[T]](f F, err error) (Filter[T], error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}
