package serve

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// setting is a parameter of CONFIG GET and CONFIG SET.
type setting struct {
	name string
	get  func(s *Server) string
	set  func(s *Server, value string) string // returns what is wrong, or ""; nil: the parameter cannot be set
}

func fixed(name string, get func(s *Server) string) setting { return setting{name: name, get: get} }

// number returns a setting with a number between two bounds.
func number(name string, low, high int64, at func(s *Server) interface {
	Load() int64
	Store(int64)
}) setting {
	return setting{name, func(s *Server) string { return formatInt(at(s).Load()) }, func(s *Server, value string) string {
		n, ok := resp.ParseInt([]byte(value))
		if !ok {
			return "argument couldn't be parsed into an integer"
		}
		if n < low || n > high {
			return "argument must be between " + formatInt(low) + " and " + formatInt(high) + " inclusive"
		}
		at(s).Store(n)
		return ""
	}}
}

// filterNumber returns a setting of filters, with RedisBloom's error messages. Its bounds may
// follow from other settings.
func filterNumber(name string, bounds func(d *defaults) (low, high int64), at func(s *Server) variable) setting {
	return setting{name, func(s *Server) string { return formatInt(at(s).Load()) }, func(s *Server, value string) string {
		n, ok := resp.ParseInt([]byte(value))
		if !ok {
			return "Invalid value for `" + name + "`"
		}
		if low, high := bounds(&s.defaults); n < low || n > high {
			return "Value for `" + name + "` must be in the range [" + formatInt(low) + ", " + formatInt(high) + "]"
		}
		at(s).Store(n)
		return ""
	}}
}

// fixedBounds returns bounds that do not depend on other settings.
func fixedBounds(low, high int64) func(*defaults) (int64, int64) {
	return func(*defaults) (int64, int64) { return low, high }
}

type variable = interface {
	Load() int64
	Store(int64)
}

var settings = []setting{
	{"appendfsync", func(s *Server) string { return Fsync(s.fsync.Load()).String() }, func(s *Server, value string) string {
		f, err := ParseFsync(strings.ToLower(value))
		if err != nil {
			return "argument(s) must be one of the following: everysec, always, no"
		}
		s.fsync.Store(int32(f))
		return ""
	}},
	fixed("appendonly", func(*Server) string { return "yes" }),
	fixed("bloom-layout", func(s *Server) string {
		if s.cfg.Layout != 0 {
			return "tight"
		}
		return "redis"
	}),
	{"bf-error-rate", func(s *Server) string { return strconv.FormatFloat(s.defaults.rate(), 'g', -1, 64) }, func(s *Server, value string) string {
		rate, ok := parseRate([]byte(value))
		if !ok {
			return "Invalid value for `bf-error-rate`"
		}
		if !(rate > 0 && rate < 1) {
			return "Value for `bf-error-rate` must be in the range (0.000000, 1.000000)"
		}
		s.defaults.setRate(min(rate, maxErrorRate))
		return ""
	}},
	filterNumber("bf-expansion-factor", fixedBounds(0, maxExpansion), func(s *Server) variable { return &s.defaults.bloomExpansion }),
	filterNumber("bf-initial-size", fixedBounds(1, maxCapacity), func(s *Server) variable { return &s.defaults.bloomCapacity }),
	filterNumber("cf-bucket-size", func(d *defaults) (int64, int64) { return 1, min(d.cuckooCapacity.Load()/2, 255) },
		func(s *Server) variable { return &s.defaults.cuckooBucket }),
	filterNumber("cf-expansion-factor", fixedBounds(0, maxExpansion), func(s *Server) variable { return &s.defaults.cuckooExpansion }),
	filterNumber("cf-initial-size", func(d *defaults) (int64, int64) { return 2 * d.cuckooBucket.Load(), maxCapacity },
		func(s *Server) variable { return &s.defaults.cuckooCapacity }),
	filterNumber("cf-max-expansions", fixedBounds(1, 65536), func(s *Server) variable { return &s.defaults.cuckooLinks }),
	filterNumber("cf-max-iterations", fixedBounds(1, 65535), func(s *Server) variable { return &s.defaults.cuckooIterations }),
	fixed("bind", func(s *Server) string { return s.cfg.Addr[:strings.LastIndexByte(s.cfg.Addr, ':')] }),
	fixed("daemonize", func(*Server) string { return "no" }),
	fixed("databases", func(*Server) string { return strconv.Itoa(numDatabases) }),
	fixed("maxclients", func(s *Server) string { return strconv.Itoa(s.cfg.MaxClients) }),
	fixed("maxmemory", func(s *Server) string { return formatInt(s.cfg.FilterBytes) }),
	fixed("maxmemory-clients", func(s *Server) string { return formatInt(s.cfg.RequestBytes) }),
	fixed("maxmemory-policy", func(*Server) string { return "noeviction" }),
	fixed("port", func(s *Server) string { return portOf(s.Addr().String()) }),
	fixed("replicaof", func(*Server) string { return "" }),
	fixed("proto-max-bulk-len", func(s *Server) string { return strconv.Itoa(s.cfg.MaxBulkBytes) }),
	{"requirepass", (*Server).password, (*Server).setPassword},
	fixed("save", func(*Server) string { return "" }),
	number("slowlog-log-slower-than", -1, 1<<62, func(s *Server) variable { return &s.slowlog.slower }),
	{"slowlog-max-len", func(s *Server) string { return formatInt(s.slowlog.most.Load()) }, func(s *Server, value string) string {
		n, ok := resp.ParseInt([]byte(value))
		if !ok {
			return "argument couldn't be parsed into an integer"
		}
		if n < 0 || n > maxSlowlog {
			return "argument must be between 0 and " + strconv.Itoa(maxSlowlog) + " inclusive"
		}
		s.slowlog.mu.Lock()
		defer s.slowlog.mu.Unlock()
		s.slowlog.most.Store(n)
		s.slowlog.trim()
		return ""
	}},
	fixed("slaveof", func(*Server) string { return "" }),
	fixed("timeout", func(s *Server) string { return formatInt(int64(s.cfg.IdleTimeout / time.Second)) }),
}

func findSetting(name []byte) *setting {
	for i := range settings {
		if is(name, settings[i].name) {
			return &settings[i]
		}
	}
	return nil
}

func config(c *client, args [][]byte) {
	switch {
	case is(args[1], "GET") && len(args) > 2:
		var found []setting
		for _, set := range settings {
			for _, pattern := range args[2:] {
				if glob(bytes.ToLower(pattern), []byte(set.name)) {
					found = append(found, set)
					break
				}
			}
		}
		c.w.Map(len(found))
		for _, set := range found {
			c.w.BulkString(set.name)
			c.w.BulkString(set.get(c.srv))
		}
	case is(args[1], "SET") && len(args) > 3:
		configSet(c, args)
	case is(args[1], "RESETSTAT") && len(args) == 2:
		c.srv.resetStats()
		c.w.OK()
	case is(args[1], "REWRITE") && len(args) == 2:
		c.w.Error("ERR The server is running without a config file")
	case is(args[1], "HELP") && len(args) == 2:
		c.help("CONFIG", "GET <pattern> ...", "SET <directive> <value> ...", "RESETSTAT")
	default:
		c.badSubcommand(args)
	}
}

// configSet sets all parameters or none.
func configSet(c *client, args [][]byte) {
	if len(args)%2 != 0 {
		c.reply(errSyntax)
		return
	}
	for i := 2; i < len(args); i += 2 {
		if findSetting(args[i]) == nil {
			c.w.Error("ERR Unknown option or number of arguments for CONFIG SET - '" + string(clip(args[i], 128)) + "'")
			return
		}
		for j := 2; j < i; j += 2 {
			if is(args[j], string(args[i])) {
				c.w.Error("ERR CONFIG SET failed (possibly related to argument '" + string(clip(args[i], 128)) + "') - duplicate parameter")
				return
			}
		}
	}
	var was []string
	for i := 2; i < len(args); i += 2 {
		set := findSetting(args[i])
		was = append(was, set.get(c.srv))
		wrong := "can't set immutable config"
		if set.set != nil {
			wrong = set.set(c.srv, string(args[i+1]))
		} else if set.get(c.srv) == string(args[i+1]) {
			wrong = ""
		}
		if wrong == "" {
			continue
		}
		for j := i - 2; j >= 2; j -= 2 {
			if back := findSetting(args[j]); back.set != nil {
				back.set(c.srv, was[j/2-1])
			}
		}
		c.w.Error("ERR CONFIG SET failed (possibly related to argument '" + string(clip(args[i], 128)) + "') - " + wrong)
		return
	}
	c.w.OK()
}
