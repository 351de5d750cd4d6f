package main

// filterCmd groups the commands about filters.
type filterCmd struct {
	Stats filterStatsCmd `cmd:"" help:"Print and probe the filter of each table."`
	Build filterBuildCmd `cmd:"" help:"Build filters for tables that lack them."`
	Plan  filterPlanCmd  `cmd:"" help:"Print how a filter memory budget would be spent."`
	Size  filterSizeCmd  `cmd:"" help:"Print the size of filters for a number of keys."`
	Live  filterLiveCmd  `cmd:"" help:"Build, merge, query and inspect filter files."`
}
