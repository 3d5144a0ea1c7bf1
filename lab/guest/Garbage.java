// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Garbage - an array of linked lists, each of which is dropped and made again.
 *
 *   java Garbage LISTS LENGTH ROUNDS SEED
 *
 * All lists are alive at any time; each round replaces each of them once, in an
 * order by SEED. Prints a line of JSON: the bytes that live, seconds that the
 * rounds took and of these in garbage collection, collections, lists made, the
 * sum of all values at the end. The status is 1 if a list is not what was made.
 */
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.Random;

final class Garbage {
    static final class Node {
        Node next;
        long value;
    }

    static Node made(int length, long first) {
        Node list = null;

        for (int at = length - 1; at >= 0; at--) {
            Node node = new Node();
            node.value = first + at;
            node.next = list;
            list = node;
        }
        return list;
    }

    static long collectedMillis() {
        long sum = 0;

        for (GarbageCollectorMXBean one : ManagementFactory.getGarbageCollectorMXBeans())
            sum += one.getCollectionTime();
        return sum;
    }

    static long collections() {
        long sum = 0;

        for (GarbageCollectorMXBean one : ManagementFactory.getGarbageCollectorMXBeans())
            sum += one.getCollectionCount();
        return sum;
    }

    public static void main(String[] words) {
        int nr = Integer.parseInt(words[0]), length = Integer.parseInt(words[1]);
        int rounds = Integer.parseInt(words[2]);
        Random random = new Random(Long.parseLong(words[3]));
        Node[] lists = new Node[nr];
        int[] order = new int[nr];
        long sum = 0;
        boolean right = true;

        for (int at = 0; at < nr; at++) {
            lists[at] = made(length, (long) at * length);
            order[at] = at;
        }
        System.gc();
        long live = Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
        long before = collectedMillis(), count = collections(), began = System.nanoTime();
        for (int round = 1; round <= rounds; round++) {
            for (int at = nr - 1; at > 0; at--) {
                int other = random.nextInt(at + 1), kept = order[at];
                order[at] = order[other];
                order[other] = kept;
            }
            for (int at : order)
                lists[at] = made(length, ((long) round * nr + at) * length);
        }
        double took = (System.nanoTime() - began) / 1e9;
        double collecting = (collectedMillis() - before) / 1e3;
        count = collections() - count;
        for (int at = 0; at < nr; at++) {
            long value = ((long) rounds * nr + at) * length;
            for (Node node = lists[at]; node != null; node = node.next) {
                right = right && node.value == value++;
                sum += node.value;
            }
            right = right && value == ((long) rounds * nr + at + 1) * length;
        }
        System.out.println("{\"live_bytes\": " + live + ", \"work_s\": " + took + ", \"gc_s\": "
                + collecting + ", \"collections\": " + count + ", \"lists\": "
                + (long) rounds * nr + ", \"right\": " + right + ", \"sum\": " + sum + "}");
        System.exit(right ? 0 : 1);
    }
}
