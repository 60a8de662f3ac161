import { signal } from "@preact/signals";

/** A filter of the list of tasks: the query of the URL that shows the filtered list. */
export interface SavedFilter {
  name: string;
  query: string;
}

const KEY = "a2a-explorer.filters";
const MAX_FILTERS = 20;

/** Filters that are always offered. */
export const COMMON_FILTERS: SavedFilter[] = [
  { name: "All", query: "" },
  { name: "Running", query: "state=working" },
  { name: "Waiting for input", query: "state=input-required" },
  { name: "Failed", query: "state=failed" },
];

function loadFilters(): SavedFilter[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    if (!Array.isArray(stored)) return [];
    return (stored as SavedFilter[]).filter((filter) => typeof filter?.name === "string" && typeof filter.query === "string");
  } catch {
    return [];
  }
}

/** The filters that the user has saved in this browser. */
export const savedFilters = signal(loadFilters());

/** Save a filter; replace an earlier one of the same name. */
export function saveFilter(name: string, query: string): void {
  storeFilters([...savedFilters.value.filter((filter) => filter.name !== name), { name, query }].slice(-MAX_FILTERS));
}

export const removeFilter = (name: string) => storeFilters(savedFilters.value.filter((filter) => filter.name !== name));

function storeFilters(filters: SavedFilter[]): void {
  savedFilters.value = filters;
  try {
    localStorage.setItem(KEY, JSON.stringify(filters));
  } catch {
    return; // storage is forbidden or full, so the filters last until the page is left
  }
}
