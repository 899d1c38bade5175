import { script } from '../middle.ts'
import type { Cell } from './cells.ts'
import { measureCell } from './measure.ts'
import { nginxVersion } from './nginx.ts'
import type { Options } from './options.ts'
import { install, peers, type Peer } from './peers.ts'
import { shares } from './plan.ts'
import type { CellResult, LeftOut } from './results.ts'
import { waysOf, type Others } from './ways.ts'

export interface Listener {
  /** Called when all subjects are installed, and the time begins. */
  begins(): void
  measured(cell: CellResult): void
  leftOut(row: LeftOut): void
}

/** Measures all cells in turn. A failing cell is left out, and the others go on: a run takes half an hour. */
export async function measureMatrix(options: Options, scratch: string, tell: Listener): Promise<void> {
  const { minutes, windows } = options
  const others = await othersThatAre(options.peers, tell)
  tell.begins()
  const plan = options.cells.map((cell) => partOf(cell, options.ways, others))
  const parts = shares(
    plan.map(({ cell, ways }) => [cell, ways.length] as const),
    windows,
  )
  for (const [index, part] of plan.entries()) {
    const budgetMs = parts[index]! * minutes * 60_000
    const run = { ...part, scratch, budgetMs, windows, leaveOut: (row: LeftOut) => tell.leftOut(row) }
    const found = await measureCell(run).catch((error: Error) =>
      tell.leftOut({ title: 'all', cell: part.cell.name, why: error.message, isFailure: true }),
    )
    if (found !== undefined) tell.measured(found)
  }
}

/** Returns a cell with its ways: all ways, or the named ways and their references. */
function partOf(cell: Cell, asked: readonly string[] | undefined, others: Others) {
  const args = [script('./stdio-upstream.js'), '--fill', String(cell.fill)]
  const stdio = { command: process.execPath, args }
  const compared = ['direct', 'floor', 'no-policy']
  const ways = waysOf(cell, others, stdio).filter(
    ({ name }) => asked === undefined || compared.includes(name) || asked.includes(name),
  )
  return { cell, stdio, ways }
}

async function othersThatAre(withPeers: boolean, tell: Listener): Promise<Others> {
  const nginx = await nginxVersion()
  if (nginx === undefined) tell.leftOut({ title: 'nginx', why: 'not on the PATH' })
  const there: Peer[] = []
  for (const peer of withPeers ? peers : []) {
    try {
      await install(peer)
      there.push(peer)
    } catch (error) {
      tell.leftOut({ title: `${peer.name} ${peer.version}`, why: String(error) })
    }
  }
  return { nginx, peers: there }
}
