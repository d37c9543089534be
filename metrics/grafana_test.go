package metrics

import (
	"regexp"
	"strings"
)

// The types below are the parts of Grafana's model of a dashboard that ours use.

type dashboard struct {
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Timezone      string     `json:"timezone"`
	Links         []link     `json:"links"`
	Templating    templating `json:"templating"`
	Panels        []panel    `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Query      string      `json:"query"`
	Datasource *datasource `json:"datasource,omitempty"`
	Refresh    int         `json:"refresh"`
	Multi      bool        `json:"multi"`
	IncludeAll bool        `json:"includeAll"`
	AllValue   string      `json:"allValue,omitempty"`
	Sort       int         `json:"sort"`
	Current    *option     `json:"current,omitempty"`
}

type option struct {
	Text  []string `json:"text"`
	Value []string `json:"value"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	GridPos     gridPos      `json:"gridPos"`
	Datasource  *datasource  `json:"datasource,omitempty"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
	Options     any          `json:"options,omitempty"`
	Targets     []target     `json:"targets,omitempty"`
	Collapsed   *bool        `json:"collapsed,omitempty"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type fieldConfig struct {
	Defaults struct {
		Unit string         `json:"unit"`
		Min  *int           `json:"min,omitempty"`
		Own  map[string]any `json:"custom,omitempty"`
	} `json:"defaults"`
	Overrides []any `json:"overrides"`
}

type target struct {
	RefID        string      `json:"refId"`
	Datasource   *datasource `json:"datasource"`
	Expr         string      `json:"expr"`
	LegendFormat string      `json:"legendFormat,omitempty"`
	Instant      bool        `json:"instant,omitempty"`
}

// chosen is the data source that the reader of a dashboard chooses: a uid would be that of
// one installation.
func chosen() *datasource { return &datasource{"prometheus", "${datasource}"} }

// selector is a variable of a dashboard with the values of a label.
func selector(label, series string) variable {
	return variable{
		Name: label, Label: strings.ToUpper(label[:1]) + label[1:], Type: "query", Query: "label_values(" + series + ", " + label + ")", Datasource: chosen(),
		Refresh: 2, Multi: true, IncludeAll: true, AllValue: ".+", Sort: 1, Current: &option{[]string{"All"}, []string{"$__all"}},
	}
}

func newDashboard(title, description string, own variable, rows []panelRow) dashboard {
	return dashboard{
		Title: title, Description: description, Tags: []string{"penstock"}, SchemaVersion: 39, GraphTooltip: 1, Refresh: "30s", Time: timeRange{"now-6h", "now"}, Timezone: "browser",
		Links: []link{{Title: "Penstock", Type: "dashboards", Tags: []string{"penstock"}, IncludeVars: true, KeepTime: true}},
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1},
			selector("job", `penstock_build_info`), selector("instance", `penstock_build_info{job=~"$job"}`), own,
		}},
		Panels: layOut(rows),
	}
}

// The grid of a dashboard is 24 wide.
const (
	gridWidth   = 24
	statWidth   = 3
	graphWidth  = 8
	statHeight  = 4
	graphHeight = 8
)

// layOut puts the panels of each row side by side. What a first row shows is one number each.
func layOut(rows []panelRow) []panel {
	var all []panel
	y := 0
	for n, row := range rows {
		open := false
		all = append(all, panel{ID: len(all) + 1, Type: "row", Title: row.title, GridPos: gridPos{1, gridWidth, 0, y}, Collapsed: &open})
		y++
		kind, width, height := "timeseries", graphWidth, graphHeight
		if n == 0 && row.title == "Now" {
			kind, width, height = "stat", statWidth, statHeight
		}
		across := gridWidth / width
		for i, p := range row.panels {
			all = append(all, newPanel(len(all)+1, kind, p, gridPos{height, width, i % across * width, y + i/across*height}))
		}
		y += (len(row.panels) + across - 1) / across * height
	}
	return all
}

func newPanel(id int, kind string, of panelOf, at gridPos) panel {
	p := panel{ID: id, Type: kind, Title: of.title, Description: of.description, GridPos: at, Datasource: chosen(), FieldConfig: &fieldConfig{Overrides: []any{}}}
	p.FieldConfig.Defaults.Unit = of.unit
	if kind == "stat" {
		p.Options = map[string]any{"colorMode": "none", "graphMode": "area", "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	} else {
		zero := 0
		p.FieldConfig.Defaults.Min = &zero
		p.FieldConfig.Defaults.Own = map[string]any{"fillOpacity": 10, "showPoints": "never"}
		p.Options = map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	}
	for i, q := range of.queries {
		p.Targets = append(p.Targets, target{RefID: string(rune('A' + i)), Datasource: chosen(), Expr: selected(q.expr), LegendFormat: q.legend})
	}
	return p
}

// seriesNames are the names of series in a query, with the brace of their labels, if they have any.
var seriesNames = regexp.MustCompile(`\b(?:penstock|process)_\w+\{?`)

// selected narrows each series of a query to the chosen jobs and instances.
func selected(expr string) string {
	return seriesNames.ReplaceAllStringFunc(expr, func(name string) string {
		bare, labeled := strings.CutSuffix(name, "{")
		if labeled {
			return bare + `{job=~"$job", instance=~"$instance", `
		}
		return bare + `{job=~"$job", instance=~"$instance"}`
	})
}
