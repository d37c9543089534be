package contract

import "github.com/penstock-run/penstock/worker/agent"

// Claims are the checks of an agent, as its adapter claims them: what a report has if no check fails.
func Claims(a agent.About) []Finding {
	var all []Finding
	for _, c := range checks {
		f := Finding{Group: c.group, Check: c.name, Means: c.means, Status: Yes}
		if c.claimed != nil && !c.claimed(a) {
			f.Status = No
		}
		all = append(all, f)
	}
	return all
}
