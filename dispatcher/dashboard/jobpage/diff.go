package jobpage

import (
	"errors"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/visible"
)

// How much of a patch stands on the page: the file has all of it.
const (
	mostPatch     = 512 << 10 // bytes that are read
	mostFiles     = 300
	mostFileLines = 400
	mostLines     = 3000 // of all files
	mostColumns   = 500  // bytes of a line
)

// A file is what a patch does to one.
type file struct {
	Name       string
	Plus, Less int
	Lines      []patchLine
	More       int // lines that are not shown

	inside bool // its lines have begun
}

// A patchLine is one, with what it is: add, del, hunk, meta or same.
type patchLine struct{ Kind, Text string }

// A diff is what stands on the page of a patch.
type diff struct {
	Files []file
	More  bool // the patch goes on
	None  string
}

// showDiff shows the patch of a finished job, file by file.
func showDiff(v *dashboard.Visit) error {
	data, err := diffOf(v)
	if err != nil {
		return err
	}
	return render(v, "diff", data)
}

func diffOf(v *dashboard.Visit) (data diff, err error) {
	asking, err := v.Client(operation.Patch.Row)
	if err != nil {
		return data, err
	}
	content, err := asking.Patch(v.Context(), v.R.PathValue("id"))
	if errors.Is(err, jobs.ErrNotFinished) {
		data.None = "The patch is here when the job has finished. Edits stand in the session as they are made."
		return data, nil
	}
	if err != nil {
		return data, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	text, more, err := readMost(content, mostPatch)
	if err != nil {
		return data, err
	}
	data.Files, data.More = parsePatch(text), more
	if len(data.Files) == 0 {
		data.None = "The job changed no files."
	}
	if len(data.Files) > mostFiles {
		data.Files, data.More = data.Files[:mostFiles], true
	}
	return data, nil
}

// parsePatch divides a patch of git into its files. A line of a file begins with a space,
// a sign or an @, so none can be taken for the beginning of the next file.
func parsePatch(text string) []file {
	var files []file
	shown := 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if name, begins := strings.CutPrefix(line, "diff --git "); begins {
			files = append(files, file{Name: visible.Line(changedFile(name))})
			continue
		}
		if len(files) == 0 {
			continue // what stands before the first file
		}
		f := &files[len(files)-1]
		l := f.read(line)
		if len(f.Lines) >= mostFileLines || shown >= mostLines {
			f.More++
			continue
		}
		f.Lines = append(f.Lines, l)
		shown++
	}
	return files
}

// changedFile is the name after the change: "a/x b/x" is x. Of a name with " b/" in it
// the last part may be cut, which its lines tell.
func changedFile(header string) string {
	if at := strings.LastIndex(header, " b/"); at >= 0 {
		return header[at+len(" b/"):]
	}
	return strings.TrimPrefix(header, "a/")
}

func (f *file) read(line string) patchLine {
	kind := "meta"
	switch {
	case strings.HasPrefix(line, "@@"):
		kind, f.inside = "hunk", true
	case f.inside && strings.HasPrefix(line, "+"):
		kind = "add"
		f.Plus++
	case f.inside && strings.HasPrefix(line, "-"):
		kind = "del"
		f.Less++
	case f.inside:
		kind = "same"
	}
	if len(line) > mostColumns {
		line = strings.ToValidUTF8(line[:mostColumns], "") + " …"
	}
	return patchLine{kind, strings.ReplaceAll(visible.Document(line), "\t", "    ")}
}
