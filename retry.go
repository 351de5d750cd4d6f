package sift

import (
	"strings"
	"time"
	"unicode"
)

const (
	// retryDelay is the pause after a failed flush or compaction.
	retryDelay = 100 * time.Millisecond
	// maxRetryFactor is the maximum pause in multiples of retryDelay. The pause grows while
	// failures continue, unless a caller requests an early retry.
	maxRetryFactor = 10
	// maxDamageFactor is the same, without early retries, for compactions of damaged tables: each
	// reads and writes the same tables again, up to the damage.
	maxDamageFactor = 36_000

	// The same error is logged again after firstReminder, and then at intervals that double up to
	// maxReminder.
	firstReminder = time.Second
	maxReminder   = time.Minute
)

// retries paces failing flushes, or compactions, and the logging of their errors. Only the
// goroutine that performs them uses it, apart from soon, which background.mu guards.
type retries struct {
	failed int       // number of failures since a retry last succeeded
	due    time.Time // the time of the next attempt
	early  time.Time // the time of the next attempt if soon is set
	soon   bool      // a caller has got the error: pause only for retryDelay, unless all is damage

	logged   string        // the error logged last, without its digits
	at       time.Time     // when it was logged
	reminder time.Duration // the time after which the same error is logged again
}

// worthLogging reports whether to log a failure: one with a new error, or the same error after
// the reminder interval. Errors that differ only in numbers count as the same, since each attempt
// creates a file with a new number.
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

// failure logs a failure and determines when to retry: after retryDelay, and after twice as long
// with each consecutive failure, up to maxRetryFactor, unless a caller requests an early retry, or
// up to maxDamageFactor if all levels whose compaction has failed are damaged.
func (d *DB) failure(r *retries, what string, err error) {
	r.failed++
	now := time.Now()
	if r.worthLogging(err, now) {
		d.opts.Logger.Error(what+" failed", "err", err, "tries", r.failed)
	}
	d.opts.Events.failed(err)
	delay, limit := d.opts.retryDelay, maxRetryFactor
	if r == &d.bg.compacting && d.onlyDamage() {
		limit = maxDamageFactor
	}
	r.early, r.due = now.Add(delay), now.Add(delay*time.Duration(min(1<<min(r.failed-1, 30), limit)))
	if limit == maxDamageFactor {
		r.early = r.due
	}
}

// onlyDamage reports whether there are levels whose last compaction failed, and all of them are
// damaged: they all wait for the same retry. Only the compacting goroutine calls it.
func (d *DB) onlyDamage() (damage bool) {
	for level, failed := range d.failedLevels {
		if failed && !d.damagedLevels[level] {
			return false
		}
		damage = damage || failed
	}
	return damage
}

// waits reports whether it is too early for a retry. REQUIRES: background.mu.
func (r *retries) waits() bool {
	return time.Now().Before(r.early) || !r.soon && time.Now().Before(r.due)
}

// pauseRetry pauses until it is time for a retry. It returns early when ended returns true.
func (b *background) pauseRetry(r *retries, ended func() bool) {
	b.pause(time.Until(r.early), ended)
	b.pause(time.Until(r.due), func() bool { return r.soon || ended() })
}
