package sweep

import (
	"context"
	"errors"
	"time"

	"nf/runtime/telemetry"
)

const (
	// dutyFor is how long a runner has the fleet's chores, dutyEvery how often it renews them.
	dutyFor   = 10 * time.Second
	dutyEvery = 3 * time.Second
	duty      = "maintenance"

	daysEvery = time.Hour
	keepEvery = time.Minute
	keepAgain = time.Second
	// fewDays is the number of days ahead below which an alarm is raised (B7).
	fewDays = 3
	// many is the number of rows after which retention goes on soon.
	many = 1000
)

// chores keeps what only one runner needs to do: days of history ahead, and what is too old. Each is safe to run twice; the duty only
// saves work.
func (s *Sweeper) chores(ctx context.Context) error {
	for {
		if err := s.Chores(ctx); err != nil {
			s.failed(ctx, duty, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.NewTimer(dutyEvery).C:
		}
	}
}

// Chores does once what is due of the chores, if this runner has the duty.
func (s *Sweeper) Chores(ctx context.Context) error {
	no := int32(0)
	if s.opt.Runner != nil {
		no = s.opt.Runner.No()
	}
	mine, err := s.store.TakeDuty(ctx, duty, no, dutyFor)
	if err != nil || !mine {
		return err
	}
	var failed error
	now := s.opt.Clock.Now()
	if s.daysAt.IsZero() || now.Sub(s.daysAt) >= daysEvery {
		if err := s.days(ctx); err != nil {
			failed = errors.Join(failed, err)
		} else {
			s.daysAt = now
		}
	}
	if now.Sub(s.keptAt) >= keepEvery {
		rows, err := s.store.Retire(ctx)
		failed = errors.Join(failed, err)
		s.keptAt = now
		if rows >= many {
			s.keptAt = now.Add(keepAgain - keepEvery)
		}
		s.count(duty, int(rows))
	}
	return failed
}

func (s *Sweeper) days(ctx context.Context) error {
	_, made := s.store.MakeDays(ctx)
	status, err := s.store.SchemaStatus(ctx)
	if err == nil && status.Days.Ahead < fewDays {
		s.opt.Log.Error("the days of history run out", "ahead", status.Days.Ahead, telemetry.KeyError, errors.Join(made, err))
	}
	return errors.Join(made, err)
}
