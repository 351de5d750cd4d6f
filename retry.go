package sift

import (
	"strings"
	"time"
	"unicode"
)

const (
	// retryDelay is the pause after a failed flush or compaction.
	retryDelay = 100 * time.Millisecond
	// maxRetryFactor is how many times that long it grows to while failures go on and
	// nobody asks.
	maxRetryFactor = 10

	firstReminder = time.Second
	maxReminder   = time.Minute
)

// retries paces flushes, or compactions, that fail again and again, and what is logged of
// them. It belongs to the goroutine that carries them out; asked is guarded by
// background.mu.
type retries struct {
	failed int  // how often, in a row
	asked  bool // a caller was refused because of the failure: no longer pause than retryDelay

	logged   string        // the error that was last logged, without its digits
	at       time.Time     // when that was
	reminder time.Duration // how long after it the same error is logged again
}

// worthLogging reports whether a failure is to be logged: the first, one with another
// error, and the same error at intervals that double from firstReminder to maxReminder.
// Errors that differ in numbers only are the same, as each try makes a file of its own.
func (r *retries) worthLogging(err error, now time.Time) bool {
	text := strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}
		return c
	}, err.Error())
	since := now.Sub(r.at)
	switch {
	case text != r.logged || since > 2*maxReminder:
		r.reminder = firstReminder
	case since < r.reminder:
		return false
	default:
		r.reminder = min(2*r.reminder, maxReminder)
	}
	r.logged, r.at = text, now
	return true
}

// retryLater logs a failure and pauses: for retryDelay, and beyond it longer with each failure
// in a row, until somebody asks. It ends early when ended is true.
func (d *DB) retryLater(r *retries, what string, err error, ended func() bool) {
	r.failed++
	if r.worthLogging(err, time.Now()) {
		d.opts.Logger.Error(what+" failed", "err", err, "tries", r.failed)
	}
	d.opts.Events.failed(err)
	delay := d.opts.retryDelay
	d.bg.pauseRetry(r, delay, delay*time.Duration(min(1<<min(r.failed-1, 30), maxRetryFactor)), ended)
}

// pauseRetry pauses for the shortest time, and then to the longest as long as nobody asks.
func (b *background) pauseRetry(r *retries, shortest, longest time.Duration, ended func() bool) {
	b.pause(shortest, ended)
	b.pause(longest-shortest, func() bool { return r.asked || ended() })
	b.change(func() { r.asked = false })
}
