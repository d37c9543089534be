package results

import (
	"cmp"
	"fmt"
	"io"

	"github.com/penstock-run/penstock/jobs/prediction"
)

// predictions writes the two shapes that evaluation tools take: one object
// by instance, and one line for each.
func (r reporter) predictions() error {
	err := r.dir.files.write("preds.json", func(w io.Writer) error {
		between := "{\n"
		err := r.eachPrediction(func(id string, one func(io.Writer) error) error {
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
	return r.dir.files.write("preds.jsonl", func(w io.Writer) error {
		return r.eachPrediction(func(_ string, one func(io.Writer) error) error {
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
func (r reporter) eachPrediction(each func(id string, one func(io.Writer) error) error) error {
	agent := r.dir.Manifest().Options["agent"]
	for result, err := range r.dir.Results() {
		if err != nil {
			return err
		}
		err := each(result.ID, func(w io.Writer) error {
			patch, err := r.dir.files.openRegular(patchName(result.ID))
			if err != nil {
				return err
			}
			defer patch.Close()
			return prediction.Write(w, result.ID, cmp.Or(result.Model, agent, "penstock"), patch)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
