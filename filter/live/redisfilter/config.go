package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// phase is the phase of a rebuild.
type phase string

// In Redis; do not change.
const (
	steady   phase = "steady"   // no rebuild; there is one generation
	filling  phase = "filling"  // read is the old generation, also the new one
	draining phase = "draining" // read is the new generation, also the old one
)

// config is the hash {NAME}:filter, all of it text:
//
//	version   1
//	lineage   16 hexadecimal digits, chosen at random at creation; rebuilds keep them
//	elements  how elements are encoded, a number (internal/funnel.Kind)
//	epoch     1, incremented by each change
//	phase     steady, filling or draining
//	read      the generation for lookups and additions
//	also      another generation for additions, if not steady
//	keys      the name in the shards' keys, if the filter was renamed: its first name
//
// A generation is eight words, for example
//
//	0123456789abcdef blocked items=1000 fpr=0.01 shards=64 size=1 hashes=7 seed=0
//
// Unknown fields are an error.
type config struct {
	lineage  uint64
	elements funnel.Kind
	epoch    uint32
	phase    phase
	read     generation
	also     generation // if not steady
	keys     string     // if the filter was renamed
}

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}") {
		return optionError("name", "%q is empty or has a brace", name)
	}
	return nil
}

func configKey(name string) string { return "{" + name + "}:filter" }

func shardKey(name string, g *generation, shard int) string {
	return fmt.Sprintf("{%s:%d}:%016x", name, shard, g.id)
}

func (c *config) fields() []any {
	f := []any{
		"version", "1",
		"lineage", fmt.Sprintf("%016x", c.lineage),
		"elements", strconv.Itoa(int(c.elements)),
		"epoch", strconv.FormatUint(uint64(c.epoch), 10),
		"phase", string(c.phase),
		"read", c.read.encode(),
	}
	if c.phase != steady {
		f = append(f, "also", c.also.encode())
	}
	if c.keys != "" {
		f = append(f, "keys", c.keys)
	}
	return f
}

func (g *generation) encode() string {
	return fmt.Sprintf("%016x %s items=%d fpr=%s shards=%d size=%d hashes=%d seed=%d", g.id, g.layout, g.items,
		strconv.FormatFloat(g.fpr, 'g', -1, 64), g.shards, g.size, g.hashes, g.seed)
}

// decodeConfig reads the fields of the hash.
func decodeConfig(f map[string]string) (c config, err error) {
	if f["version"] != "1" {
		return c, formatError("version %q", f["version"])
	}
	n := newNumbers(func(name string) string { return f[name] })
	c.lineage = n.get("lineage", 16, math.MaxUint64)
	c.elements = funnel.Kind(n.get("elements", 10, math.MaxUint8))
	c.epoch = uint32(n.get("epoch", 10, math.MaxUint32))
	if n.err != nil {
		return c, n.err
	}
	want := 6
	if c.read, err = decodeGeneration(f["read"]); err != nil {
		return c, err
	}
	switch c.phase = phase(f["phase"]); c.phase {
	case steady:
	case filling, draining:
		want++
		if c.also, err = decodeGeneration(f["also"]); err != nil {
			return c, err
		}
	default:
		return c, formatError("phase %q", f["phase"])
	}
	if keys, ok := f["keys"]; ok {
		want++
		if c.keys = keys; checkName(keys) != nil {
			return c, formatError("keys %q", keys)
		}
	}
	if len(f) != want {
		return c, formatError("%d fields, not %d", len(f), want)
	}
	return c, nil
}

func decodeGeneration(s string) (g generation, err error) {
	w := strings.Fields(s)
	if len(w) != 8 {
		return g, formatError("generation %q", s)
	}
	at := 1
	n := newNumbers(func(name string) string {
		at++
		v, ok := strings.CutPrefix(w[at], name+"=")
		if !ok {
			return ""
		}
		return v
	})
	g.items = n.get("items", 10, math.MaxUint64)
	g.fpr = n.float("fpr")
	g.shards = int(n.get("shards", 10, maxShards))
	g.size = n.get("size", 10, maxShardBytes*8)
	g.hashes = int(n.get("hashes", 10, 255))
	g.seed = n.get("seed", 10, math.MaxUint64)
	if n.err != nil {
		return g, n.err
	}
	if g.id, err = strconv.ParseUint(w[0], 16, 64); err != nil || len(w[0]) != 16 {
		return g, formatError("generation %q", w[0])
	}
	switch w[1] {
	case Blocked.String():
		g.layout = Blocked
	case Scattered.String():
		g.layout = Scattered
	default:
		return g, formatError("layout %q", w[1])
	}
	if g.shards < 1 || g.size < 1 || g.hashes < 1 || !(g.fpr > 0 && g.fpr < 1) || g.bytes() > maxShardBytes ||
		g.layout == Scattered && g.size%8 != 0 {
		return g, formatError("generation %q", s)
	}
	return g, nil
}

// numbers parses numbers and keeps the first error.
type numbers struct {
	text func(name string) string
	err  error
}

func newNumbers(text func(name string) string) *numbers { return &numbers{text: text} }

func (n *numbers) get(name string, base int, limit uint64) uint64 {
	s := n.text(name)
	v, err := strconv.ParseUint(s, base, 64)
	if n.err == nil && (err != nil || v > limit) {
		n.err = formatError("%s %q", name, s)
	}
	return v
}

func (n *numbers) float(name string) float64 {
	s := n.text(name)
	v, err := strconv.ParseFloat(s, 64)
	if n.err == nil && err != nil {
		n.err = formatError("%s %q", name, s)
	}
	return v
}

// loadConfig reads a filter's configuration; ErrMissing if there is none.
func (s *sender) loadConfig(ctx context.Context, name string) (config, error) {
	r := &request{key: configKey(name), args: []any{"hgetall", configKey(name)}}
	if err := s.send(ctx, false, r); err != nil {
		return config{}, err
	}
	f, err := pairs(r.reply)
	if err != nil {
		return config{}, err
	}
	if len(f) == 0 {
		return config{}, fmt.Errorf("%w: %q", ErrMissing, name)
	}
	c, err := decodeConfig(f)
	if err != nil {
		return c, fmt.Errorf("key %q: %w", configKey(name), err)
	}
	c.read.keys = name
	if c.keys != "" {
		c.read.keys = c.keys
	}
	if c.phase != steady {
		c.also.keys = c.read.keys
	}
	return c, nil
}

// pairs converts a reply to a map. The reply is a map in RESP3 and a list in RESP2.
func pairs(reply any) (map[string]string, error) {
	f := map[string]string{}
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			f[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			f[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	default:
		return nil, formatError("reply of type %T", reply)
	}
	return f, nil
}

// casScript replaces a configuration if it has the expected lineage and epoch, or if it is
// missing and "" is expected.
const casScript = `
local now = redis.call('HMGET', KEYS[1], 'lineage', 'epoch')
if (now[1] or '') .. (now[2] or '') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return 1`

// swapConfig replaces the configuration old, nil for none, with c. It returns false if the
// configuration was no longer old.
func (s *sender) swapConfig(ctx context.Context, name string, old, c *config) (bool, error) {
	expect := ""
	if old != nil {
		expect = fmt.Sprintf("%016x%d", old.lineage, old.epoch)
	}
	r := eval(configKey(name), casScript, append([]any{expect}, c.fields()...)...)
	if err := s.send(ctx, true, r); err != nil {
		return false, err
	}
	if r.reply == int64(1) {
		return true, nil
	}
	// The reply to an attempt that succeeded may have been lost.
	now, err := s.loadConfig(ctx, name)
	switch {
	case errors.Is(err, ErrMissing):
		return false, nil
	case err != nil:
		return false, err
	case old == nil: // a rebuild may have changed it since
		return now.lineage == c.lineage, nil
	}
	return now == *c, nil
}
