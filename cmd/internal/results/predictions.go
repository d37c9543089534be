package results

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs/prediction"
)

// predictions writes the predictions of a batch; where it compares agents, those of each
// agent, and of several tries of an item that of the best.
func (r reporter) predictions() error {
	worse, err := r.worse()
	if err != nil {
		return err
	}
	var agents []string
	for _, item := range r.dir.Manifest().Items {
		if !slices.Contains(agents, item.Agent) {
			agents = append(agents, item.Agent)
		}
	}
	for _, agent := range agents {
		name := "preds"
		if agent != "" {
			name += "-" + intake.FileSafe(agent)
		}
		if err := r.predictionsOf(agent, name, worse); err != nil {
			return err
		}
	}
	return nil
}

// worse are the tries of items that have a better one.
func (r reporter) worse() (map[string]bool, error) {
	if !slices.ContainsFunc(r.dir.Manifest().Items, Item.try) {
		return nil, nil
	}
	s, err := r.summarise()
	if err != nil {
		return nil, err
	}
	worse := map[string]bool{}
	for _, row := range s.Rows {
		worse[row.ID] = row.try() && !row.Best
	}
	return worse, nil
}

// predictionsOf writes the two shapes that evaluation tools take: one object by instance,
// and one line for each.
func (r reporter) predictionsOf(agent, name string, worse map[string]bool) error {
	err := r.dir.files.write(name+".json", func(w io.Writer) error {
		between := "{\n"
		err := r.eachPrediction(agent, worse, func(id string, one func(io.Writer) error) error {
			if _, err := fmt.Fprintf(w, "%s%q: ", between, id); err != nil {
				return err
			}
			between = ",\n"
			return one(w)
		})
		if err == nil && between == "{\n" {
			_, err = io.WriteString(w, between)
		}
		if err == nil {
			_, err = io.WriteString(w, "\n}\n")
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.dir.files.write(name+".jsonl", func(w io.Writer) error {
		return r.eachPrediction(agent, worse, func(_ string, one func(io.Writer) error) error {
			if err := one(w); err != nil {
				return err
			}
			_, err := io.WriteString(w, "\n")
			return err
		})
	})
}

// eachPrediction hands on one prediction after the other. Patches are copied
// and not kept: a batch may have more of them than there is memory.
func (r reporter) eachPrediction(agent string, worse map[string]bool, each func(id string, one func(io.Writer) error) error) error {
	m := r.dir.Manifest()
	instances := map[string]string{} // by item
	for _, item := range m.Items {
		if item.Agent == agent && !worse[item.ID] {
			instances[item.ID] = cmp.Or(item.Of, item.ID)
		}
	}
	model := cmp.Or(agent, m.Options["agent"], "penstock")
	for result, err := range r.dir.Results() {
		if err != nil {
			return err
		}
		instance, ours := instances[result.ID]
		if !ours {
			continue
		}
		err := each(instance, func(w io.Writer) error {
			patch, err := r.dir.files.openRegular(patchName(result.ID))
			if err != nil {
				return err
			}
			defer patch.Close()
			return prediction.Write(w, instance, cmp.Or(result.Model, model), patch)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
