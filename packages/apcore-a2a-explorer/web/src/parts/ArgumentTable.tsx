import type { JsonObject } from "../protocol/types";
import { escapeBidi, JsonTree } from "./JsonTree";

/** The arguments of a call, one per row, with their values as JSON. */
export const ArgumentTable = ({ values }: { values: JsonObject }) => (
  <div class="scroll" tabIndex={0} role="region" aria-label="Arguments">
    <table class="arguments">
      <tbody>
        {Object.entries(values).map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{escapeBidi(name)}</th>
            <td class="tree">
              <JsonTree value={value} open={1} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </div>
);
