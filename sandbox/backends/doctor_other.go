//go:build !linux

package backends

import (
	"context"
	"fmt"
	"slices"
)

// Doctor makes a jail, where this system has one, and says what it enforces.
func Doctor(ctx context.Context, _ string) Report {
	name, untried := Auto, []Finding(nil)
	if slices.Contains(names, "seatbelt") {
		name = "seatbelt"
		untried = []Finding{{Check: name, Level: LevelAdvice, Message: "this backend has never run on a Mac: its profiles were compared on Linux",
			Price: "auto never chooses it; a job gets it with --backend seatbelt"}}
	}
	b, err := New(ctx, name)
	if err != nil {
		return Report{Tier: TierNone, Findings: []Finding{{Check: "jail", Level: LevelProblem, Message: err.Error()}}}
	}
	features, err := b.Check(ctx)
	if err != nil {
		return Report{Tier: TierNone, Findings: []Finding{{Check: "jail", Level: LevelProblem, Message: err.Error()}}}
	}
	return Report{Tier: TierDegraded, Findings: append(untried, []Finding{
		{Check: "jail", Level: LevelOK, Message: fmt.Sprintf("backend %s made a jail, which enforces %v", b.Name(), features)},
		{Check: "limits", Level: LevelProblem, Message: "each job has to allow the absence of other features by name"},
	}...)}
}
