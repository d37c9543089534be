package doctorcmd

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// checkRecords compares the records with what else is known of their jobs. Where no pool
// runs, serve looks when it starts.
func checkRecords(ctx context.Context, p *pool.Pool) (Finding, error) {
	f := Finding{Check: "records", Status: "ok", Detail: "they agree with the sessions and results"}
	lost, err := p.Dispatcher.Audit(ctx, false)
	if len(lost) > 0 {
		f.Status, f.Detail = "weak", fmt.Sprintf("%d lost their last update: %s", len(lost), lost[0])
		f.Price = "the broker's store has lost acknowledged writes"
		f.Fix = "a dispatcher repairs them when it becomes the leader, and every hour: run penstock serve, then check the broker's disk"
	}
	return f, err
}
