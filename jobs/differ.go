package jobs

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Differences returns the fields in which two jobs differ, as sorted paths of
// their JSON: "agent.model", "check". A list differs as a whole. What says who
// submitted the job, under which key and in which trace is no difference.
func Differences(a, b Job) ([]string, error) {
	var fields [2]map[string]any
	for i, job := range []Job{a, b} {
		job.Key, job.Signature, job.Trace = "", nil, Trace{}
		data, err := json.Marshal(job)
		if err == nil {
			err = json.Unmarshal(data, &fields[i])
		}
		if err != nil {
			return nil, fmt.Errorf("compare jobs: %w", err)
		}
	}
	found := differing("", fields[0], fields[1])
	slices.Sort(found)
	return found, nil
}

func differing(path string, a, b map[string]any) []string {
	names := maps.Clone(a)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, b)
	var found []string
	for name := range names {
		left, objects := a[name].(map[string]any)
		right, both := b[name].(map[string]any)
		switch {
		case objects && both:
			found = append(found, differing(join(path, name), left, right)...)
		case !reflect.DeepEqual(a[name], b[name]):
			found = append(found, join(path, name))
		}
	}
	return found
}
