package serve

import "time"

// One event loop is best as long as it keeps up: it finds more clients ready at a time, so that
// each costs less. When the loops in use are always busy, another one helps, unless the CPUs have
// other work, such as clients on the same machine. So the balancer tries one more for a moment, and
// keeps it if more commands are executed with it. Sometimes it tries one fewer in the same way. A
// client moves to another loop once its replies have been sent.

const (
	balanceEvery = 25 * time.Millisecond
	// restEvery is how often idle loops are checked.
	restEvery = 10 * balanceEvery
	// busyShare is the share of its time during which a busy loop is not asleep.
	busyShare = 0.9
	// fitShare is how busy the loops may become if there is one fewer.
	fitShare = 0.6
	// helpsFrom is the factor by which another loop must raise the number of commands.
	helpsFrom = 1.1
	// enough is how many consecutive steps must agree.
	enough = 3
	// trialSteps is the length of a trial. The first half is for clients to move.
	trialSteps = 4
	// The pause after a trial. After trials that do not help it doubles, up to trialWaitMost.
	trialWait, trialWaitMost = 2 * time.Second, 20 * time.Second
)

// balancer decides how many loops are in use.
type balancer struct {
	inUse, most int
	busy, idle  int    // consecutive steps that call for one more loop, or one fewer
	last        uint64 // commands in the previous step

	steps          int // of the current trial; 0: no trial
	before, during uint64
	less           bool // try one loop fewer, not one more; repeated as long as it helps
	wait           time.Duration
	notBefore      time.Duration
}

// step returns how many loops to use. commands were executed since the last step; busy is the share
// of the time for which each loop was busy.
func (b *balancer) step(now time.Duration, commands uint64, busy []float64) int {
	if b.steps > 0 {
		if b.steps++; b.steps > 1+trialSteps/2 {
			b.during += commands
		}
		if b.steps == 1+trialSteps {
			b.judge(now)
		}
		return b.inUse
	}
	least, sum := 1.0, 0.0
	for _, v := range busy[:b.inUse] {
		least = min(least, v)
		sum += v
	}
	b.busy, b.idle = b.busy+1, b.idle+1
	if least < busyShare {
		b.busy = 0
	}
	if b.inUse == 1 || sum > fitShare*float64(b.inUse-1) {
		b.idle = 0
	}
	switch {
	case b.idle >= enough:
		b.inUse--
		b.idle = 0
	case b.busy >= enough && now >= b.notBefore:
		b.before, b.during = b.last+commands, 0
		b.less = b.inUse == b.most || b.less && b.inUse > 1
		b.inUse++
		if b.less {
			b.inUse -= 2
		}
		b.steps, b.busy = 1, 0
	}
	b.last = commands
	return b.inUse
}

// judge ends a trial.
func (b *balancer) judge(now time.Duration) {
	b.steps, b.last = 0, b.during/2
	helps := float64(b.during) >= helpsFrom*float64(b.before)
	if b.less {
		helps = float64(b.during)*helpsFrom >= float64(b.before)
	}
	over := b.during < b.before/2 // there was less to do: the trial is inconclusive
	if helps || over {
		b.wait = 0
	} else {
		b.wait = min(max(2*b.wait, trialWait), trialWaitMost)
	}
	if !helps {
		b.inUse--
		if b.less {
			b.inUse += 2
		}
	}
	switch {
	case over:
		b.notBefore = now
	case helps:
		b.notBefore = now + trialWait
	default:
		b.less = !b.less
		b.notBefore = now + b.wait
	}
}

// balance sets how many loops are in use.
func (s *Server) balance() {
	b := balancer{inUse: 1, most: len(s.loops)}
	tick := time.NewTicker(balanceEvery)
	defer tick.Stop()
	start := time.Now()
	last := start
	busy := make([]float64, len(s.loops))
	idle := make([]int64, len(s.loops))
	var done uint64
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			total := uint64(0)
			for i, l := range s.loops {
				// A loop that is asleep adds to idle only when it wakes up.
				slept := l.idle.Load()
				if asleep := l.asleepSince.Load(); asleep != 0 {
					slept += now.UnixNano() - asleep
				}
				busy[i] = 1 - float64(slept-idle[i])/float64(now.Sub(last))
				idle[i] = slept
				total += l.commands.Load()
			}
			n := b.step(now.Sub(start), total-done, busy)
			if n != int(s.inUse.Load()) {
				s.inUse.Store(int32(n))
			}
			if total == done {
				tick.Reset(restEvery)
			} else if now.Sub(last) > 2*balanceEvery {
				tick.Reset(balanceEvery)
			}
			last, done = now, total
		}
	}
}
