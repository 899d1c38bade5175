import { parseArgs } from 'node:util'
import { cells, type Cell } from './cells.ts'
import { brief, thorough, type Windows } from './plan.ts'

export interface Options {
  readonly cells: readonly Cell[]
  /** Rows to measure besides the direct way and the byte proxy; default: all. */
  readonly ways: readonly string[] | undefined
  readonly peers: boolean
  /** Time for all cells together. */
  readonly minutes: number
  readonly windows: Windows
  /** File for every figure of every round. */
  readonly json: string | undefined
  /** Page for the tables, with pictures beside the page. */
  readonly page: string | undefined
  /** File with the figures of an earlier run; then nothing is measured. */
  readonly from: string | undefined
}

const QUICK_MINUTES = 2
const MINUTES = 23

/** Reads the command line. Throws an error that lists the valid words. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      minutes: { type: 'string' },
      cell: { type: 'string', multiple: true },
      only: { type: 'string', multiple: true },
      'no-peers': { type: 'boolean', default: false },
      json: { type: 'string' },
      page: { type: 'string' },
      from: { type: 'string' },
    },
  })
  const minutes = Number(values.minutes ?? (values.quick ? QUICK_MINUTES : MINUTES))
  if (!(minutes >= 1 && minutes <= 120)) throw new Error('--minutes: expected a number from 1 to 120')
  return {
    cells:
      values.cell === undefined
        ? cells.filter(({ quick }) => quick || !values.quick)
        : cellsNamed(values.cell),
    ways: values.only,
    peers: !values['no-peers'],
    minutes,
    windows: values.quick ? brief : thorough,
    json: values.json,
    page: values.page,
    from: values.from,
  }
}

function cellsNamed(names: readonly string[]): Cell[] {
  const unknown = names.find((name) => !cells.some((cell) => cell.name === name))
  if (unknown === undefined) return cells.filter(({ name }) => names.includes(name))
  throw new Error(`--cell: expected ${cells.map(({ name }) => name).join(', ')}`)
}

export function commandOf(args: readonly string[]): string {
  const isPlace = (arg: string | undefined) => arg === '--json' || arg === '--page'
  const asked = args.filter((arg, index) => !isPlace(arg) && !isPlace(args[index - 1]))
  return ['npm run bench:full', ...(asked.length === 0 ? [] : ['--', ...asked])].join(' ')
}
