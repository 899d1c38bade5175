import { blocks, table } from '../../../docs/generate/markdown.ts'

/** The page `docs/fault-cells.md`: what was seen of each type at each place, in Markdown as prettier leaves it. */
export function cellsPage(
  types: readonly string[],
  places: readonly string[],
  cell: (type: string, place: string) => string,
): string {
  return blocks(
    '# What is seen of each fault',
    'Towards agents of each era (`side: client`), and towards servers of each transport and era (`side: upstream`), with retries, breakers and verdicts off. `npm run cells -- --record` writes this page: its tests start a gateway between an agent and servers that know nothing but sockets and pipes, see each fault there, and check that the same is not seen without it. What is not applicable is either refused in a plan, or left out with the same words in the journal, or about requests that there are not. [faults.md](faults.md) describes the types.',
    table(
      ['Type', ...places],
      types.map((type) => [`\`${type}\``, ...places.map((place) => cell(type, place))]),
    ),
  )
}
