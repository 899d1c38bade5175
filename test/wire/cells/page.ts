import { blocks, table } from '../../../docs/generate/markdown.ts'

/**
 * Returns the page `docs/fault-cells.md`: the result of each type at each place, in Markdown formatted like prettier's.
 */
export function cellsPage(
  types: readonly string[],
  places: readonly string[],
  cell: (type: string, place: string) => string,
): string {
  return blocks(
    '# Effects of each fault',
    'Towards agents of each era (`side: client`), and towards servers of each transport and era (`side: upstream`), with retries, breakers and verdicts off. `npm run cells -- --record` writes this page. Its tests start a gateway between an agent and servers on bare sockets and pipes. The tests look for the effect of each fault, and check that the effect is absent without the fault. A fault that is not applicable is refused in a plan, or left out with the same words in the journal, or there are no such requests. [faults.md](faults.md) describes the types.',
    table(
      ['Type', ...places],
      types.map((type) => [`\`${type}\``, ...places.map((place) => cell(type, place))]),
    ),
  )
}
