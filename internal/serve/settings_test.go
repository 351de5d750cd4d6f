package serve

import (
	"strings"
	"testing"
)

// What RedisBloom refuses is refused in its words.
func TestFilterWording(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo, FilterBytes: 1 << 20}))
	c.do("CF.ADD", "c", "x")
	header := []byte(c.do("CF.SCANDUMP", "c", "0").([]any)[1].(string))
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
		{[]string{"CONFIG", "SET", "cf-bucket-size", "x"}, "couldn't be parsed into an integer"},
	} {
		if got, ok := c.do(step.args...).(failure); !ok || !strings.HasSuffix(string(got), step.want) {
			t.Errorf("%q: %v, want %s", step.args, got, step.want)
		}
	}
}
