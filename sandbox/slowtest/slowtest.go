// Package slowtest stretches the limits of tests where the machine is busy, and says whether
// the race detector is on.
//
// A limit in a test says that something which never comes is a failure. It
// must not say how fast the machine is: where other programs compute, the same
// work takes many times as long. So tests write the limit of a calm machine,
// and [Limit] stretches it by how many processes share each processor now.
//
// What a test waits for, such as a lease that runs out, is stretched by
// [Pace]: only where the machine is so busy that heartbeats would come late.
package slowtest

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	// roomy is how many processes may share a processor before limits grow:
	// the limits of a calm machine have that much room.
	roomy = 2
	// late is how many may share it before heartbeats come late.
	late = 4
	// most bounds the factor, so that a test which hangs still ends.
	most = 20
)

// Limit returns d, or a multiple of it where the machine is busy now.
func Limit(d time.Duration) time.Duration { return stretch(d, crowd(), roomy) }

// Pace returns d, or a multiple of it where the machine is too busy to do in
// d what a calm machine does.
func Pace(d time.Duration) time.Duration { return stretch(d, crowd(), late) }

func stretch(d time.Duration, crowd, bearable float64) time.Duration {
	return time.Duration(float64(d) * min(max(1, crowd/bearable), most))
}

// Eventually asks ok again and again, with a pause between, and reports
// whether it became true within the limit, which is stretched while it runs: a
// machine may become busy meanwhile.
func Eventually(limit, pause time.Duration, ok func() bool) bool {
	for began := time.Now(); !ok(); time.Sleep(pause) {
		if spent := time.Since(began); spent > limit && spent > Limit(limit) {
			return false
		}
	}
	return true
}

// crowd is how many processes share each processor, or wait for the disk: the
// mean of the last minute, or more if they have just come. It is one where the
// system does not say so. An emulated machine does not see how busy its host is;
// what starts one sets PENSTOCK_TEST_CROWD, and it is no less.
func crowd() float64 {
	least := 1.0
	if n, err := strconv.ParseFloat(os.Getenv("PENSTOCK_TEST_CROWD"), 64); err == nil {
		least = n
	}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return least
	}
	return max(least, parse(string(text))/float64(runtime.NumCPU()))
}

// parse reads a text like "0.31 1.62 3.66 2/421 8119".
func parse(loadavg string) float64 {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 1
	}
	running, _, _ := strings.Cut(fields[3], "/")
	most := 1.0
	for _, text := range []string{fields[0], running} {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			most = max(most, n)
		}
	}
	return most
}
