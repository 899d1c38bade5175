import type { GameDayRecord } from '../../gamedays/record.ts'
import { readGameDays } from '../../gamedays/store.ts'
import { printable } from '../../telemetry/printable.ts'
import { type Output, UnusableInput } from '../shared/arguments.ts'

/**
 * Returns the GameDays of a state folder, the oldest first, and warns on standard error of each file that cannot be used.
 * Rejects with an `UnusableInput`.
 */
export async function storedGameDays(
  folder: string,
  out: Pick<Output, 'stderr'>,
): Promise<readonly GameDayRecord[]> {
  const { records, problems } = await readGameDays(folder).catch((error: Error) => {
    throw new UnusableInput(`the GameDays in ${folder} cannot be read: ${error.message}`)
  })
  for (const { file, why } of problems)
    out.stderr(printable(`breakwater: a GameDay is left out: ${file} ${why}`))
  return records
}
