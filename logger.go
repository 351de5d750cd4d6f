package sift

import (
	"context"
	"log/slog"
)

// defaultLogger is what a nil Options.Logger means: slog.Default(), and of that
// the warnings and errors, as flushes and compactions are no news to a program that
// has not asked for them.
func defaultLogger() *slog.Logger { return slog.New(warnings{slog.Default().Handler()}) }

// warnings hands on records from slog.LevelWarn on.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
