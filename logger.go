package sift

import (
	"context"
	"log/slog"
)

// defaultLogger returns the logger for a nil Options.Logger: slog.Default(), limited to warnings
// and errors, so without messages about flushes and compactions.
func defaultLogger() *slog.Logger { return slog.New(warnings{slog.Default().Handler()}) }

// warnings drops records below slog.LevelWarn.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
