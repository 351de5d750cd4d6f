package sift

import (
	"strings"
	"time"
	"unicode"
)

const (
	// retryDelay is the pause after a failed flush or compaction.
	retryDelay = 100 * time.Millisecond
	// maxRetryFactor bounds the pause, in multiples of retryDelay. It grows while failures continue
	// and no caller asks for a retry.
	maxRetryFactor = 10

	firstReminder = time.Second
	maxReminder   = time.Minute
)

// retries paces repeatedly failing flushes, or compactions, and the logging of their errors. It
// belongs to the goroutine that performs them; asked is guarded by background.mu.
type retries struct {
	failed int  // number of failures in a row
	asked  bool // a caller was refused because of the failure: pause only for retryDelay

	logged   string        // the last error logged, without its digits
	at       time.Time     // when it was logged
	reminder time.Duration // how long before the same error is logged again
}

// worthLogging reports whether to log a failure: the first one, one with another error, and
// the same error at intervals that double from firstReminder to maxReminder. Errors that
// differ only in numbers count as the same, since each attempt creates a file with a new
// number.
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

// retryLater logs a failure and pauses: for retryDelay, and longer with each consecutive failure
// unless a caller asks for a retry. It returns early when ended is true.
func (d *DB) retryLater(r *retries, what string, err error, ended func() bool) {
	r.failed++
	if r.worthLogging(err, time.Now()) {
		d.opts.Logger.Error(what+" failed", "err", err, "tries", r.failed)
	}
	d.opts.Events.failed(err)
	delay := d.opts.retryDelay
	d.bg.pauseRetry(r, delay, delay*time.Duration(min(1<<min(r.failed-1, 30), maxRetryFactor)), ended)
}

// pauseRetry pauses for the shortest time, and then up to the longest while nobody asks.
func (b *background) pauseRetry(r *retries, shortest, longest time.Duration, ended func() bool) {
	b.pause(shortest, ended)
	b.pause(longest-shortest, func() bool { return r.asked || ended() })
	b.change(func() { r.asked = false })
}
