import type { Message } from '../mesh/call.ts'
import { countCopy } from '../mesh/turns.ts'
import { during } from '../mesh/work.ts'
import { notificationText, paramsOf } from '../protocol/jsonrpc.ts'
import { LargeMessage } from '../protocol/large-message.ts'

/** Most that all copies of one message may come to, in UTF-16 code units: all copies are made in one turn of the event loop. */
const MOST_OF_ALL = 1024 ** 2

/**
 * Tells many of what a server says to all who listen: that a resource or a list has changed. Where all copies together would be more than
 * 1 MiB, they get what an agent acts on, the method and the `uri`, and nothing else of it.
 */
export function fanOut<Receiver>(
  receivers: ReadonlySet<Receiver>,
  message: Message,
  tell: (receiver: Receiver, message: Message) => void,
): void {
  during('fan_out', () => {
    const told = isTooLong(message, receivers.size) ? inBrief(message) : message
    for (const receiver of receivers) {
      tell(receiver, told)
      countCopy()
    }
  })
}

/** Takes a message that is still bytes for too long, without making its text. */
function isTooLong(message: Message, copies: number): boolean {
  return copies > 1 && (LargeMessage.is(message) || message.text.length * copies > MOST_OF_ALL)
}

function inBrief({ value }: Message): Message {
  const method = value.method as string
  const { uri } = paramsOf(value)
  const params = uri === undefined ? {} : { uri }
  return { text: notificationText(method, params), value: { jsonrpc: '2.0', method, params } }
}
