package results

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs/prediction"
	"github.com/penstock-run/penstock/jobs/report"
)

// predictions writes the predictions of a batch; where it compares agents, those of each
// agent, and of several tries of an item that of the best, which may be of any agent.
func (r reporter) predictions() error {
	best, all, err := r.best()
	if err != nil {
		return err
	}
	named := map[string][]Item{} // by the names of their files
	add := func(name string, item Item, is bool) {
		if named[name] == nil { // also a file without a prediction is one
			named[name] = []Item{}
		}
		if is {
			named[name] = append(named[name], item)
		}
	}
	for i, item := range r.dir.Manifest().Items {
		if item.Agent != "" {
			add("preds-"+intake.FileSafe(item.Agent), item, best[i])
		}
		if item.Agent == "" || item.try() {
			add("preds", item, all[i])
		}
	}
	for name, some := range named {
		if err := r.predictionsOf(name, some); err != nil {
			return err
		}
	}
	return nil
}

// best says which items predictions are made of: those that are no try, and of several tries the best,
// of each agent and of all.
func (r reporter) best() (ofAgent, ofAll []bool, err error) {
	items := r.dir.Manifest().Items
	rows := make([]report.Item, 0, len(items))
	for _, item := range items {
		rows = append(rows, item.row())
	}
	if slices.ContainsFunc(items, Item.try) {
		s, err := r.summarise()
		if err != nil {
			return nil, nil, err
		}
		rows = s.Report.Rows
	}
	ofAgent = report.BestBy(rows, func(i report.Item) string { return i.Of + "\x00" + i.Agent })
	for i, row := range rows {
		single := !row.IsTry()
		ofAgent[i] = ofAgent[i] || single
		ofAll = append(ofAll, row.Best || single)
	}
	return ofAgent, ofAll, nil
}

// predictionsOf writes the two shapes that evaluation tools take: one object by instance,
// and one line for each.
func (r reporter) predictionsOf(name string, items []Item) error {
	err := r.dir.files.write(name+".json", func(w io.Writer) error {
		between := "{\n"
		err := r.eachPrediction(items, func(id string, one func(io.Writer) error) error {
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
		return r.eachPrediction(items, func(_ string, one func(io.Writer) error) error {
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
func (r reporter) eachPrediction(items []Item, each func(id string, one func(io.Writer) error) error) error {
	m := r.dir.Manifest()
	of := make(map[string]Item, len(items))
	for _, item := range items {
		of[item.ID] = item
	}
	versions := slices.ContainsFunc(m.Items, func(i Item) bool { return strings.Contains(i.Agent, "@") })
	for result, err := range r.dir.Results() {
		if err != nil {
			return err
		}
		item, ours := of[result.ID]
		if !ours {
			continue
		}
		instance, model := cmp.Or(item.Of, item.ID), cmp.Or(result.Model, item.Agent, m.Options["agent"], "penstock")
		if versions { // of which several have the same model
			model = item.Agent
			if result.Model != "" && !strings.Contains(model, "=") {
				model += "=" + result.Model
			}
		}
		err := each(instance, func(w io.Writer) error {
			patch, err := r.dir.files.openRegular(patchName(result.ID))
			if err != nil {
				return err
			}
			defer patch.Close()
			return prediction.Write(w, instance, model, patch)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
