package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// warnings prints the database's warnings, one line each.
type warnings struct {
	mu sync.Mutex // background work logs too
	w  io.Writer
}

func (*warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (h *warnings) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString("sift: warning: " + r.Message)
	cause := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			cause = a.Value.String()
		}
		return true
	})
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == "err":
			b.WriteString(": " + cause)
		case a.Key == "path" && strings.Contains(cause, a.Value.String()): // the cause names the file
		default:
			fmt.Fprintf(&b, ", %s %v", a.Key, a.Value)
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintln(h.w, b.String())
	return err
}

// The store uses its logger without attributes or groups.
func (h *warnings) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *warnings) WithGroup(string) slog.Handler      { return h }
