package dispatcher_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// Sixty-four clients submit by requests of the bus, one job after the other each.
func BenchmarkSubmitByRequest(b *testing.B) {
	p := open(b, dispatcher.Hooks{})
	p.serve(b)
	body, err := json.Marshal(job())
	if err != nil {
		b.Fatal(err)
	}
	eventually(b, "an answer", func() bool {
		_, err := p.nc.Request("penstock.v1.api.submit", body, jobstest.Patience)
		return err == nil
	})
	b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			msg, err := p.nc.Request("penstock.v1.api.submit", body, jobstest.Patience)
			if err != nil || !strings.Contains(string(msg.Data), `"id"`) {
				b.Errorf("%v %s", err, msg.Data)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submits/s")
}
