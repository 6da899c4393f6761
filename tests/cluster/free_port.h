/* SPDX-License-Identifier: MIT
 *
 * Ports of the loopback: a free one, and a connection to one.
 */
#ifndef EO_TESTS_FREE_PORT_H
#define EO_TESTS_FREE_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void choose_free_port(char port[16])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        exit(1);
    snprintf(port, 16, "%u", ntohs(address.sin_port));
    close(fd);
}

/* Tries for 10 seconds, and ends the process if no one listens. */
static inline int dial_port(const char *port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                        .sin_port = htons((uint16_t)atoi(port))};
    for (int i = 0; i < 1000; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
            return fd;
        close(fd);
        usleep(10000);
    }
    exit(1);
}

#endif
