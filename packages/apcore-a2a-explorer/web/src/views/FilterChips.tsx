import { useState } from "preact/hooks";
import { COMMON_FILTERS, removeFilter, savedFilters, saveFilter } from "../state/filters";

const addressOf = (query: string) => (query ? `#/tasks?${query}` : "#/tasks");

/** Links to common filters and to those that the user has saved. */
export function FilterChips({ query }: { query: URLSearchParams }) {
  const current = query.toString();
  const all = [...COMMON_FILTERS, ...savedFilters.value];
  const isKnown = all.some((filter) => filter.query === current);
  return (
    <div class="chips">
      <ul class="row bare" aria-label="Common and saved filters">
        {COMMON_FILTERS.map((filter) => (
          <li key={filter.name}>
            <Chip {...filter} current={current} />
          </li>
        ))}
        {savedFilters.value.map((filter) => (
          <li key={`saved ${filter.name}`} class="saved">
            <Chip {...filter} current={current} />
            <button type="button" class="quiet small" aria-label={`Remove filter ${filter.name}`} onClick={() => removeFilter(filter.name)}>
              ✕
            </button>
          </li>
        ))}
      </ul>
      {!isKnown && <Save query={current} />}
    </div>
  );
}

const Chip = ({ name, query, current }: { name: string; query: string; current: string }) => (
  <a class="chip breakable" href={addressOf(query)} aria-current={query === current ? "true" : undefined}>
    {name}
  </a>
);

function Save({ query }: { query: string }) {
  const [name, setName] = useState("");
  const save = (event: Event) => {
    event.preventDefault();
    event.stopPropagation();
    if (name.trim()) saveFilter(name.trim(), query);
  };
  return (
    <form class="row" onSubmit={save}>
      <label>
        <span class="sr">Name of this filter</span>
        <input placeholder="Name of this filter" maxLength={40} value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <button type="submit">Save filter</button>
    </form>
  );
}
