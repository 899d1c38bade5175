import type { gameDayInShort } from '../../../routes/admin-gamedays.ts'
import { UnusableInput } from '../../shared/arguments.ts'
import { type Given, textOf } from '../../shared/control-command.ts'

/** A GameDay, in the format of `/admin/gamedays`. */
export type ListedGameDay = ReturnType<typeof gameDayInShort>

/** The option for commands whose positional is something else. */
export const ofOption = {
  of: { kind: 'text', value: 'GAMEDAY', about: 'id or name of a GameDay (default: the current or last one)' },
} as const

/** Returns the path of a GameDay, by its id or name. */
export const pathOf = (idOrName: string): string => `/admin/gamedays/${encodeURIComponent(idOrName)}`

/** All GameDays of the gateway, the oldest first. Rejects with an `UnusableInput`. */
async function listed({ control }: Given): Promise<readonly ListedGameDay[]> {
  const answered = await control({ method: 'GET', path: '/admin/gamedays' })
  if (!answered.ok) throw new UnusableInput(answered.message)
  return (answered.value as { readonly gameDays: readonly ListedGameDay[] }).gameDays
}

const isUnderWay = ({ state }: ListedGameDay): boolean => state === 'running' || state === 'paused'

/** Returns the path of the named GameDay, or of the current one. Rejects with an `UnusableInput`. */
export async function currentPath(given: Given): Promise<string> {
  const [name] = given.positionals
  if (name !== undefined) return pathOf(name)
  const current = (await listed(given)).find(isUnderWay)
  if (current === undefined) throw new UnusableInput('no GameDay is under way')
  return pathOf(current.id)
}

/** Returns the path of a GameDay by its name, else of the current or last one. Rejects with an `UnusableInput`. */
export async function latestPath(given: Given, name: string | undefined): Promise<string> {
  if (name !== undefined) return pathOf(name)
  const all = await listed(given)
  const latest = all.find(isUnderWay) ?? all.at(-1)
  if (latest === undefined) throw new UnusableInput('there has been no GameDay at this gateway')
  return pathOf(latest.id)
}

/** Returns the path of the GameDay of `--of`, else of the current or last one. */
export const notedPath = (given: Given): Promise<string> => latestPath(given, textOf(given.values, 'of'))
