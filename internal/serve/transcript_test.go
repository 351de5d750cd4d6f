package serve

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// step is a command of the transcript and RedisBloom's replies to it.
type step struct {
	n    int
	args []string
	want [4]any // by protocol
}

// transcript was recorded from a RedisBloom of the 8.x line.
func transcript(t *testing.T) (out []step) {
	t.Helper()
	data, err := os.ReadFile("testdata/redisbloom.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(data), []byte{'\n'})[1:] {
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var entry struct {
			N     int
			Cmd   []any
			Resp2 any
			Resp3 any
		}
		if err := d.Decode(&entry); err != nil {
			t.Fatal(err)
		}
		s := step{n: entry.N}
		for _, w := range entry.Cmd {
			if word, ok := w.(string); ok {
				s.args = append(s.args, word)
				continue
			}
			b, err := hex.DecodeString(w.(map[string]any)["hex"].(string))
			if err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, string(b))
		}
		s.want[2] = decodeReply(t, entry.Resp2)
		if s.want[3] = s.want[2]; entry.Resp3 != nil {
			s.want[3] = decodeReply(t, entry.Resp3)
		}
		out = append(out, s)
	}
	if len(out) < 1500 {
		t.Fatalf("%d commands", len(out))
	}
	return out
}

// replay runs the transcript, and counts replies that differ from RedisBloom's.
func replay(t *testing.T, proto int, do func(args []string) any, view func(any) any) {
	t.Helper()
	differ := 0
	steps := transcript(t)
	for _, s := range steps {
		if got, want := do(s.args), view(s.want[proto]); !reflect.DeepEqual(got, want) {
			if differ++; differ < 30 {
				t.Errorf("%d: %.200s\n got %.300s\nwant %.300s", s.n, strings.Join(s.args, " "), fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
			}
		}
	}
	t.Logf("%d commands, %d differences", len(steps), differ)
}

// On the wire, every reply is that of RedisBloom.
func TestTranscript(t *testing.T) { everyWay(t, testTranscript) }

func testTranscript(t *testing.T) {
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
			c.do("HELLO", fmt.Sprint(proto))
			replay(t, proto, func(args []string) any { return c.do(args...) }, func(v any) any { return v })
		})
	}
}

// As parsed by go-redis, every reply is that of RedisBloom.
func TestTranscriptGoRedis(t *testing.T) {
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
			r := redis.NewClient(&redis.Options{Addr: s.Addr().String(), Protocol: proto, PoolSize: 1, MaxRetries: -1})
			defer r.Close()
			replay(t, proto, func(args []string) any {
				words := make([]any, len(args))
				for i, a := range args {
					words[i] = a
				}
				v, err := r.Do(context.Background(), words...).Result()
				if errors.Is(err, redis.Nil) {
					return nil
				} else if err != nil {
					return failure(err.Error())
				}
				return seen(v)
			}, seen)
		})
	}
}

// seen returns a reply in the form in which go-redis returns it.
func seen(v any) any {
	switch v := v.(type) {
	case simple:
		return string(v)
	case null:
		return nil
	case error:
		return failure(v.Error())
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = seen(v[i])
		}
		return out
	case pairs:
		out := map[any]any{}
		for _, p := range v {
			out[seen(p[0])] = seen(p[1])
		}
		return out
	case map[any]any:
		out := map[any]any{}
		for k, e := range v {
			out[seen(k)] = seen(e)
		}
		return out
	}
	return v
}
