package serve

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// Errors are worded as RedisBloom words them.
func TestFilterWording(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo, FilterBytes: 1 << 20}))
	c.do("CF.ADD", "c", "x")
	c.do("BF.ADD", "b", "x")
	header := c.do("CF.SCANDUMP", "c", "0").([]any)[1].(string)
	corrupt := make([]byte, len(header))
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"CF.LOADCHUNK", "k", "1", "short"}, "Invalid header"},
		{[]string{"CF.LOADCHUNK", "k", "1", string(corrupt)}, "Couldn't create filter!"},
		{[]string{"CONFIG", "SET", "bf-error-rate", "1"}, "must be in the range (0.000000, 1.000000)"},
		{[]string{"CONFIG", "SET", "bf-initial-size", "0"}, "must be in the range [1, 1073741824]"},
		{[]string{"CONFIG", "SET", "cf-bucket-size", "256"}, "must be in the range [1, 255]"},
		{[]string{"CONFIG", "SET", "cf-bucket-size", "x"}, "Invalid value for `cf-bucket-size`"},
		{[]string{"CONFIG", "SET", "bf-error-rate", "x"}, "Invalid value for `bf-error-rate`"},
		{[]string{"CONFIG", "SET", "cf-max-expansions", "0"}, "must be in the range [1, 65536]"},
		{[]string{"CONFIG", "SET", "cf-max-expansions", "65537"}, "must be in the range [1, 65536]"},
		{[]string{"CONFIG", "SET", "cf-initial-size", "3"}, "must be in the range [4, 1073741824]"},
		{[]string{"CONFIG", "SET", "cf-initial-size", "20", "cf-bucket-size", "11"}, "must be in the range [1, 10]"},
		// A header of a filter too large for any memory: 2⁴⁸ buckets.
		{[]string{"CF.LOADCHUNK", "k", "1", header[:8] + "\x00\x00\x00\x00\x00\x00\x01\x00" + header[16:]}, "Couldn't create filter!"},
		{[]string{"BF.LOADCHUNK", "b", "1", "short"}, "ERR received bad data"},
		{[]string{"BF.LOADCHUNK", "b", "0", "x"}, "ERR received bad data"},
		{[]string{"BF.LOADCHUNK", "b", "2", "long"}, "ERR received bad data"},
		{[]string{"BF.LOADCHUNK", "b", "71752852194637", "HELLO"}, "ERR invalid offset - no link found"},
		{[]string{"BF.LOADCHUNK", "b", "202", strings.Repeat("x", 200)}, "ERR invalid chunk - Too big for current filter"},
	} {
		if got, ok := c.do(step.args...).(failure); !ok || !strings.HasSuffix(string(got), step.want) {
			t.Errorf("%q: %v, want %s", step.args, got, step.want)
		}
	}
}

// RedisBloom's settings have its defaults, and CONFIG SET changes them.
func TestFilterSettings(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	for _, step := range []struct{ name, before, value, after string }{
		{"bf-error-rate", "0.01", "0.02", "0.02"},
		{"bf-error-rate", "0.02", "0.5", "0.25"},
		{"bf-initial-size", "100", "200", "200"},
		{"bf-expansion-factor", "2", "3", "3"},
		{"cf-bucket-size", "2", "3", "3"},
		{"cf-initial-size", "1024", "2048", "2048"},
		{"cf-max-iterations", "20", "30", "30"},
		{"cf-expansion-factor", "1", "2", "2"},
		{"cf-max-expansions", "32", "64", "64"},
	} {
		if got := c.do("CONFIG", "GET", step.name); !reflect.DeepEqual(got, []any{step.name, step.before}) {
			t.Errorf("%s is %v at first, want %s", step.name, got, step.before)
		}
		if got := c.do("CONFIG", "SET", step.name, step.value); got != simple("OK") {
			t.Errorf("CONFIG SET %s %s: %v", step.name, step.value, got)
		}
		if got := c.do("CONFIG", "GET", step.name); !reflect.DeepEqual(got, []any{step.name, step.after}) {
			t.Errorf("%s is %v afterwards, want %s", step.name, got, step.after)
		}
	}
}

// A cuckoo filter with cf-max-expansions links accepts no more items, but a single command that
// adds many items may exceed that number, as in RedisBloom.
func TestMaxExpansions(t *testing.T) {
	dir := t.TempDir()
	var header string
	links := func(c *caller, key string) int64 { return c.do("CF.INFO", key).([]any)[5].(int64) }
	t.Run("grow", func(t *testing.T) {
		c := dial(t, start(t, dir, Config{Fsync: FsyncNo}))
		c.do("CONFIG", "SET", "cf-max-expansions", "3")
		c.do("CF.RESERVE", "c", "4")
		var err any
		for i := 0; i < 100 && err == nil; i++ {
			if reply := c.do("CF.ADD", "c", strconv.Itoa(i)); reply != int64(1) {
				err = reply
			}
		}
		if err != failure("Maximum expansions reached") || links(c, "c") != 3 {
			t.Errorf("%v with %d links", err, links(c, "c"))
		}
		for _, call := range []string{"CF.ADDNX c x", "CF.INSERT c ITEMS x y", "CF.INSERTNX c ITEMS x y"} {
			if got := c.do(strings.Fields(call)...); got != err {
				t.Errorf("%s: %v", call, got)
			}
		}
		c.do("CF.RESERVE", "many", "4")
		added := c.do(append(strings.Fields("CF.INSERT many ITEMS"), strings.Fields(strings.Repeat("x ", 400))...)...).([]any)
		if len(added) != 400 || added[399] != int64(1) || links(c, "many") != 100 {
			t.Errorf("%d replies, %d links", len(added), links(c, "many"))
		}
		header = c.do("CF.SCANDUMP", "many", "0").([]any)[1].(string)
		if got := c.do("CF.LOADCHUNK", "k", "1", header); got != failure("Couldn't create filter!") {
			t.Errorf("a header with 100 links: %v", got)
		}
		if got := c.do("RESTORE", "k", "0", c.do("DUMP", "many").(string)); got != failure("ERR Bad data format") {
			t.Errorf("a dump with 100 links: %v", got)
		}
		c.do("CONFIG", "SET", "cf-max-expansions", "100")
		if got := c.do("CF.LOADCHUNK", "k", "1", header); got != simple("OK") {
			t.Errorf("a header with 100 links: %v", got)
		}
	})
	c := dial(t, start(t, dir, Config{Fsync: FsyncNo}))
	if n, count := links(c, "many"), c.do("CF.COUNT", "many", "x"); n != 100 || count != int64(400) {
		t.Errorf("after a restart %d links and %v items", n, count)
	}
}
