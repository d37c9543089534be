package intake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	yaml "go.yaml.in/yaml/v3"

	"github.com/penstock-run/penstock/jobs"
)

// A matrix is the product of its axes, as a batch in YAML has it: each job of
// the batch is made once for each combination of their values.
type matrix struct {
	line  int
	axes  []axis // in the file's order, which is the one in ids
	combs []combination
}

type axis struct {
	name   string
	values []string // as the file writes them: 3.10 is not 3.1
}

// A combination is one value of each axis.
type combination map[string]string

var axisName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][A-Za-z0-9_]*$`) })

// readMatrix reads axes, each a list of values, and exclude: the combinations
// that are left out.
func readMatrix(node *yaml.Node, limits Limits) (*matrix, error) {
	if node.Kind != yaml.MappingNode {
		return nil, inputError(node.Line, "matrix: wants axes, each with a list of values")
	}
	m := &matrix{line: node.Line}
	var exclude *yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Value == "exclude" && exclude == nil:
			exclude = value
			continue
		case key.Value == "include":
			return nil, inputError(key.Line, "matrix: include is not there; write the axes so that they hold all, and exclude what shall not be")
		case !axisName().MatchString(key.Value):
			return nil, inputError(key.Line, "matrix: %q is no name of an axis: use letters, digits and _, a small letter first", key.Value)
		case key.Value == "exclude" || m.axis(key.Value) != nil:
			return nil, inputError(key.Line, "matrix: %q is there twice", key.Value)
		}
		values, err := axisValues(key.Value, value)
		if err != nil {
			return nil, err
		}
		m.axes = append(m.axes, axis{key.Value, values})
	}
	if len(m.axes) == 0 {
		return nil, inputError(node.Line, "matrix: has no axes")
	}
	rules, err := m.rules(exclude)
	if err != nil {
		return nil, err
	}
	if err := m.multiply(limits); err != nil {
		return nil, err
	}
	m.combs = slices.DeleteFunc(m.combs, func(c combination) bool {
		return slices.ContainsFunc(rules, c.fits)
	})
	if len(m.combs) == 0 {
		return nil, inputError(exclude.Line, "matrix: exclude leaves nothing")
	}
	return m, nil
}

func (m *matrix) axis(name string) *axis {
	i := slices.IndexFunc(m.axes, func(a axis) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &m.axes[i]
}

func axisValues(name string, list *yaml.Node) ([]string, error) {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, inputError(list.Line, "matrix: %s wants a list of values", name)
	}
	var values []string
	for _, node := range list.Content {
		if node.Kind != yaml.ScalarNode || node.Value == "" || node.Tag == "!!null" {
			return nil, inputError(node.Line, "matrix: %s: a value is a word or a number", name)
		}
		if slices.Contains(values, node.Value) {
			return nil, inputError(node.Line, "matrix: %s has %q twice", name, node.Value)
		}
		values = append(values, node.Value)
	}
	return values, nil
}

// rules reads exclude: a list of what combinations have that are left out. One
// that fits none was mistyped.
func (m *matrix) rules(node *yaml.Node) ([]combination, error) {
	if node == nil {
		return nil, nil
	}
	if node.Kind != yaml.SequenceNode {
		return nil, inputError(node.Line, "matrix: exclude wants a list, each with values of axes")
	}
	var rules []combination
	for _, item := range node.Content {
		if item.Kind != yaml.MappingNode || len(item.Content) == 0 {
			return nil, inputError(item.Line, "matrix: exclude wants values of axes, as in {%s: %s}", m.axes[0].name, m.axes[0].values[0])
		}
		rule := combination{}
		for i := 0; i+1 < len(item.Content); i += 2 {
			key, value := item.Content[i], item.Content[i+1]
			a := m.axis(key.Value)
			if a == nil {
				return nil, inputError(key.Line, "matrix: exclude names the axis %q, which is not there", key.Value)
			}
			if value.Kind != yaml.ScalarNode || !slices.Contains(a.values, value.Value) {
				return nil, inputError(value.Line, "matrix: exclude: %q is no value of %s, which has %s", value.Value, a.name, strings.Join(a.values, ", "))
			}
			rule[a.name] = value.Value
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// fits reports whether c has all that a rule names.
func (c combination) fits(rule combination) bool {
	for name, value := range rule {
		if c[name] != value {
			return false
		}
	}
	return true
}

// multiply makes the combinations, the last axis changing fastest.
func (m *matrix) multiply(limits Limits) error {
	product := 1
	for _, a := range m.axes {
		if product *= len(a.values); product > limits.Items { // both are far from an overflow
			return inputError(m.line, "matrix: has more than %d combinations: use fewer values, or raise --max-items", limits.Items)
		}
	}
	m.combs = []combination{{}}
	for _, a := range m.axes {
		var next []combination
		for _, c := range m.combs {
			for _, value := range a.values {
				with := combination{a.name: value}
				for name, v := range c {
					with[name] = v
				}
				next = append(next, with)
			}
		}
		m.combs = next
	}
	return nil
}

// bounded refuses what would be more items, or more text, than a file may hold.
func (m *matrix) bounded(objects []object, defaults json.RawMessage, limits Limits) error {
	if len(objects) > limits.Items/len(m.combs) {
		return inputError(m.line, "matrix: makes %d items of %d jobs, at most %d are allowed: split the file, or raise --max-items", len(objects)*len(m.combs), len(objects), limits.Items)
	}
	size := len(defaults) * len(objects)
	for _, o := range objects {
		size += len(o.raw)
	}
	if jobs.Bytes(size) > limits.Bytes/jobs.Bytes(len(m.combs)) {
		return inputError(m.line, "matrix: makes more than %s of jobs: split the file, or raise --max-input", limits.Bytes)
	}
	return nil
}

// entries makes each object an item for each combination.
func (m *matrix) entries(objects []object, defaults json.RawMessage, limits Limits) ([]*entry, error) {
	if err := m.bounded(objects, defaults, limits); err != nil {
		return nil, err
	}
	kind := kindOf(objects)
	var entries []*entry
	for i, o := range objects {
		first := ""
		if len(objects) > 1 {
			first = fmt.Sprintf("item-%d", i+1)
		}
		if o.err != nil {
			entries = append(entries, o.entry(kind))
			continue
		}
		for _, c := range m.combs {
			e := o.entry(kind)
			m.combine(e, kind == "job", first, c)
			if e.err == nil && defaults != nil {
				e.addDefaults(defaults, c)
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// combine makes an entry the one of a combination. Text by others, such as issues
// and instances, is not a template. Where an item's own text does not distinguish
// it from the others, the values do; first stands for an id where it has none.
func (m *matrix) combine(e *entry, template bool, first string, c combination) {
	own := e.id
	e.id = m.id(cmp.Or(own, first), c)
	e.matrix = map[string]any{}
	for name, value := range c {
		e.matrix[name] = value
	}
	if e.err != nil || !template {
		return
	}
	filled, err := c.render(e.job)
	if err != nil {
		e.err = inputError(e.line, "item %s: %v", e.id, err)
		return
	}
	e.job, e.item = filled, plain(filled)
	if item, _ := e.item["item"].(string); item != "" && item != own {
		e.id = item
	}
}

// addDefaults lays what the file says for all its jobs under the entry's own.
func (e *entry) addDefaults(defaults json.RawMessage, c combination) {
	under, err := c.render(defaults)
	if err == nil {
		e.job, err = overlay(under, e.job)
	}
	if err != nil {
		e.err = inputError(e.line, "item %s: defaults: %v", e.id, err)
	}
}

// id is the job's own, and the values in the order of the axes.
func (m *matrix) id(own string, c combination) string {
	var parts []string
	if own != "" {
		parts = append(parts, own)
	}
	for _, a := range m.axes {
		parts = append(parts, strings.Trim(unsafeRunes().ReplaceAllString(c[a.name], "-"), "-._"))
	}
	return strings.Join(parts, "-")
}

// render fills in each text of a job in which the matrix is named.
func (c combination) render(raw json.RawMessage) (json.RawMessage, error) {
	var fields map[string]any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, err
	}
	for name, value := range fields {
		if name == "issue" {
			continue
		}
		filled, err := fill(name, value, map[string]any{"matrix": map[string]string(c)})
		if err != nil {
			return nil, err
		}
		fields[name] = filled
	}
	return json.Marshal(fields)
}

// fill executes the templates in a value, at any depth; at names it.
func fill(at string, value any, known map[string]any) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		if !strings.Contains(v, "{{") {
			return v, nil
		}
		var t *template.Template
		if t, err = parse(at, v); err != nil {
			return nil, fmt.Errorf("%s: the template does not parse: %w", at, err)
		}
		var b strings.Builder
		if err = t.Execute(&b, known); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		return b.String(), nil
	case []any:
		for i := range v {
			if v[i], err = fill(at, v[i], known); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name := range v {
			if v[name], err = fill(at+"."+name, v[name], known); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}
