package layout

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Clock returns by how much this host's clock is ahead of the broker's, to about the time
// that a request takes.
func Clock(ctx context.Context, nc *nats.Conn) (ahead time.Duration, err error) {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return 0, err
	}
	var info struct {
		Time time.Time `json:"ts"`
	}
	asked := time.Now()
	if err := conn.Ask(ctx, "STREAM.INFO."+subject.Dead, nil, &info); err != nil {
		return 0, fmt.Errorf("ask for the broker's time: %w", err)
	}
	if info.Time.IsZero() {
		return 0, fmt.Errorf("the broker does not tell its time")
	}
	halfway := asked.Add(time.Since(asked) / 2)
	return halfway.Sub(info.Time), nil
}
