package worker

import (
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
)

// noteLimits records the limits that a program has run into, whether it ended
// by them or went on: an agent may live on without the compiler that it lost.
func noteLimits(refused *policy.Watch, program string, exit sandbox.Exit) {
	for _, f := range exit.Reached {
		refused.Note(policy.KindLimit, string(f), program+" reached it")
	}
}
